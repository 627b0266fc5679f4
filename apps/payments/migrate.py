"""The application's own tables, step by step, up and down. Everything here runs in a transaction of the caller's."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection
from psycopg.errors import UniqueViolation

from trueup import ConfigError

Tx = AsyncConnection[Any]

MIGRATIONS = files(__package__) / "migrations"
STEPS = sorted(each.name.removesuffix(".up.sql") for each in MIGRATIONS.iterdir() if each.name.endswith(".up.sql"))
LATEST = len(STEPS)


async def migrate(tx: Tx, to: int = LATEST) -> list[str]:
    """Take the steps that lead to this version; which ones. Several processes may ask at once: one does it, in one commit.

    A version of a later release is left alone; to take it back raises ConfigError, for only that release can.
    """
    if not 0 <= to <= LATEST:
        raise ConfigError(f"there are versions 0 to {LATEST}, and no {to}")
    await tx.execute("select pg_advisory_xact_lock(hashtextextended('apps.payments schema', 0))")
    await tx.execute("create schema if not exists app")
    await tx.execute(
        "create table if not exists app.payment_migrations"
        " (version int primary key, name text not null, applied_at timestamptz not null default now())"
    )
    row = await (await tx.execute("select coalesce(max(version), 0) from app.payment_migrations")).fetchone()
    assert row is not None
    at: int = row[0]
    if at > LATEST:
        if to == LATEST:
            return []
        raise ConfigError(f"the tables are at version {at}, of which this release knows nothing")
    taken = []
    for version in range(at + 1, to + 1):
        try:
            await tx.execute((MIGRATIONS / f"{STEPS[version - 1]}.up.sql").read_bytes())
        except UniqueViolation as error:
            doubled = (error.diag.message_detail or "").rpartition("=(")[2].partition(")")[0]
            raise ConfigError(f"two payment requests have the same address and token: {doubled}") from None
        await tx.execute(
            "insert into app.payment_migrations (version, name) values (%s, %s)", [version, STEPS[version - 1]]
        )
        taken.append(f"{STEPS[version - 1]} up")
    for version in range(at, to, -1):
        await tx.execute((MIGRATIONS / f"{STEPS[version - 1]}.down.sql").read_bytes())
        await tx.execute("delete from app.payment_migrations where version = %s", [version])
        taken.append(f"{STEPS[version - 1]} down")
    return taken
