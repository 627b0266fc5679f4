"""What the tests of real replicas share: requests in a real database, payments on a chain that follows the world's clock."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg

from apps.chain.anvil import Anvil
from apps.payments import migrate
from tests.apps.payments.desk import CHAIN, new_address
from trueup import App

SOON = 30  # seconds; what is waited for takes two or three
MODULE = "apps.payments.reconciler"
NAME = "PAYMENT_REQUEST_RECONCILER_"


async def tables(url: str, version: int = migrate.LATEST) -> None:
    async with App(url) as app, app.transaction() as tx:
        await migrate.migrate(tx, version)


def requested(
    database: psycopg.Connection[Any], count: int = 1, expected: int | None = 1000, hours: float = 1
) -> list[str]:
    """The addresses of so many new requests."""
    addresses = [new_address() for _ in range(count)]
    with database.cursor() as cursor:
        cursor.executemany(
            "insert into app.payment_requests (chain_id, address, expected_amount, expires_at)"
            " values (%s, %s, %s, now() + make_interval(hours => %s))",
            [(CHAIN, address, expected, hours) for address in addresses],
        )
    return addresses


def statuses(database: psycopg.Connection[Any]) -> Counter[str]:
    return Counter(
        dict(database.execute("select status, count(*)::int from app.payment_requests group by 1").fetchall())
    )


def leased(database: psycopg.Connection[Any]) -> int:
    row = database.execute("select count(*) from app.payment_requests where reconcile_lease_until > now()").fetchone()
    assert row is not None
    return int(row[0])


def pay(anvil: Anvil, *addresses: str, amount: int = 1000) -> None:
    payer = anvil.accounts()[0]
    for address in addresses:
        anvil.send(payer, address, amount)
