"""Users and their messages in the database. Everything here runs in a transaction of the caller's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row, dict_row

from .planning import Planned, Rules, first_after, following, planned_for

Tx = AsyncConnection[Any]

SCHEMA = (files(__package__) / "schema.sql").read_text("utf-8")


@dataclass(frozen=True)
class User:
    id: int
    first_name: str
    last_name: str
    date_of_birth: date
    timezone: str


async def make_tables(tx: Tx) -> None:
    """Several processes may start at once: one makes them, the others find them."""
    await tx.execute("select pg_advisory_xact_lock(hashtextextended('apps.birthdays schema', 0))")
    await tx.execute(SCHEMA.encode())


async def create(
    tx: Tx, rules: Rules, first_name: str, last_name: str, born: date, timezone: str, *, now: datetime | None = None
) -> User:
    """The user, and the first message still to come. Raises ConfigError for a zone that does not exist."""
    birthday = rules.birthday(born, timezone)
    user = await _one(
        tx,
        "insert into users (first_name, last_name, date_of_birth, timezone) values (%s, %s, %s, %s) returning *",
        [first_name, last_name, born, timezone],
    )
    assert user is not None
    await _plan(tx, user.id, first_after(birthday, now or await _now(tx)))
    return user


async def get(tx: Tx, user_id: int) -> User | None:
    return await _one(tx, "select * from users where id = %s", [user_id])


async def every(tx: Tx, *, after: int, most: int) -> list[User]:
    async with tx.cursor(row_factory=class_row(User)) as cursor:
        await cursor.execute(f"select {_COLUMNS} from users where id > %s order by id limit %s", [after, most])
        return await cursor.fetchall()


async def update(tx: Tx, rules: Rules, user_id: int, **changed: Any) -> User | None:
    """Change a user. The message that is still to come follows the user's own clocks and date."""
    before = await _one(tx, "select * from users where id = %s for update", [user_id])
    if before is None:
        return None
    values = {**before.__dict__, **changed}
    rules.birthday(values["date_of_birth"], values["timezone"])
    after = await _one(
        tx,
        "update users set first_name = %(first_name)s, last_name = %(last_name)s, date_of_birth = %(date_of_birth)s,"
        " timezone = %(timezone)s where id = %(id)s returning *",
        values,
    )
    assert after is not None
    if (before.date_of_birth, before.timezone) != (after.date_of_birth, after.timezone):
        await _plan_anew(tx, rules, after, moved_only=before.date_of_birth == after.date_of_birth)
    return after


async def delete(tx: Tx, user_id: int) -> bool:
    """The user, and every message to come."""
    return bool((await tx.execute("delete from users where id = %s", [user_id])).rowcount)


async def plan_next(tx: Tx, rules: Rules, user: User, year: int) -> None:
    """Next year's message. Twice is once."""
    await _plan(tx, user.id, following(rules.birthday(user.date_of_birth, user.timezone), year))


async def _plan_anew(tx: Tx, rules: Rules, user: User, *, moved_only: bool) -> None:
    """A user who moved gets this year's message by the new clocks, at once if they are past it. A birthday that was corrected
    to one in the past is next year's. What was sent stays sent: there is no second message for its year.
    """
    cursor = await tx.execute(
        "select id, target_year from events where user_id = %s and status in ('PENDING', 'FAILED', 'PROCESSING') for update",
        [user.id],
    )
    birthday, now = rules.birthday(user.date_of_birth, user.timezone), await _now(tx)
    for event_id, year in await cursor.fetchall():
        planned = planned_for(birthday, year) if moved_only else None
        planned = planned or first_after(birthday, now, from_year=year)
        # To PENDING also what is being sent right now: its outcome is then refused, and it is sent again under the same key.
        await tx.execute(
            "update events set target_year = %s, target_timestamp_utc = %s, status = 'PENDING', version = version + 1,"
            " next_attempt_at = null where id = %s",
            [planned.year, planned.due_at, event_id],
        )


async def _plan(tx: Tx, user_id: int, planned: Planned) -> None:
    await tx.execute(
        "insert into events (user_id, target_year, target_timestamp_utc) values (%s, %s, %s)"
        " on conflict (user_id, event_type, target_year) do nothing",
        [user_id, planned.year, planned.due_at],
    )


async def events(tx: Tx, *, user_id: int | None = None, status: str | None = None, most: int = 100) -> list[dict[str, Any]]:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "select * from events where (%(user)s::bigint is null or user_id = %(user)s)"
            " and (%(status)s::text is null or status = %(status)s) order by target_timestamp_utc limit %(most)s",
            {"user": user_id, "status": status, "most": most},
        )
        return await cursor.fetchall()


async def dead_letters(tx: Tx, *, most: int = 100) -> list[dict[str, Any]]:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute("select * from dead_letters limit %s", [most])
        return await cursor.fetchall()


async def requeue(tx: Tx, event_id: str | None) -> int:
    """Try a dead letter again, or all of them, with all attempts. Returns how many."""
    cursor = await tx.execute(
        "update events set status = 'PENDING', attempts = 0, version = version + 1, last_error = null, next_attempt_at = null"
        " where status = 'DEAD' and (%(id)s::uuid is null or id = %(id)s)",
        {"id": event_id},
    )
    return cursor.rowcount


_COLUMNS = "id, first_name, last_name, date_of_birth, timezone"


async def _one(tx: Tx, query: str, params: Any) -> User | None:
    query = query.replace("returning *", f"returning {_COLUMNS}").replace("select *", f"select {_COLUMNS}")
    async with tx.cursor(row_factory=class_row(User)) as cursor:
        await cursor.execute(query.encode(), params)
        return await cursor.fetchone()


async def _now(tx: Tx) -> datetime:
    """By the database's clock."""
    row = await (await tx.execute("select now()")).fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment
