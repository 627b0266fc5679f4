"""Users and their messages in the database. Everything here runs in a transaction of the caller's.

Where it matters what time it is, `now` may be given; without it the database's clock is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from importlib.resources import files
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import class_row, dict_row

from trueup import ConfigError
from trueup.schedules.yearly import Yearly
from trueup.web.database import apply_schema

from .planning import Planned, Rules, first_after, following, has_passed, planned_anew, planned_for

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
    await apply_schema(tx, SCHEMA, marked="events")


# -- users ------------------------------------------------------------------------------------------------------------


async def create(
    tx: Tx, rules: Rules, first_name: str, last_name: str, born: date, timezone: str, *, now: datetime | None = None
) -> User:
    """The user, and the first message still to come. Raises ConfigError for a zone that does not exist."""
    birthday = rules.birthday(born, timezone)
    async with tx.cursor(row_factory=class_row(User)) as cursor:
        await cursor.execute(
            "insert into users (first_name, last_name, date_of_birth, timezone) values (%s, %s, %s, %s)"
            " returning id, first_name, last_name, date_of_birth, timezone",
            [first_name, last_name, born, timezone],
        )
        user = await cursor.fetchone()
    assert user is not None
    await plan(tx, user.id, first_after(birthday, now or await database_time(tx)))
    return user


async def get(tx: Tx, user_id: int, *, unchanging: bool = False) -> User | None:
    """`unchanging`: the user is not changed or deleted before the end of the transaction."""
    query = "select id, first_name, last_name, date_of_birth, timezone from users where id = %s"
    async with tx.cursor(row_factory=class_row(User)) as cursor:
        await cursor.execute(f"{query} for update" if unchanging else query, [user_id])
        return await cursor.fetchone()


async def every(tx: Tx, *, after: int, most: int) -> list[User]:
    async with tx.cursor(row_factory=class_row(User)) as cursor:
        await cursor.execute(
            "select id, first_name, last_name, date_of_birth, timezone from users where id > %s order by id limit %s",
            [after, most],
        )
        return await cursor.fetchall()


async def update(tx: Tx, rules: Rules, user_id: int, *, now: datetime | None = None, **changed: Any) -> User | None:
    """Change a user; None when there is none. The message that is still to come follows the user's own clocks and date."""
    before = await get(tx, user_id, unchanging=True)
    if before is None:
        return None
    after = User(**{**before.__dict__, **changed})
    await tx.execute(
        "update users set first_name = %(first_name)s, last_name = %(last_name)s, date_of_birth = %(date_of_birth)s,"
        " timezone = %(timezone)s where id = %(id)s",
        after.__dict__,
    )
    if before.date_of_birth != after.date_of_birth:
        await _plan_anew(tx, rules, after, now or await database_time(tx), corrected=True)
    elif before.timezone != after.timezone:
        await _plan_anew(tx, rules, after, now or await database_time(tx), corrected=False)
    return after


async def delete(tx: Tx, user_id: int) -> bool:
    """The user, and every message."""
    return bool((await tx.execute("delete from users where id = %s", [user_id])).rowcount)


# -- their messages ---------------------------------------------------------------------------------------------------


async def plan(tx: Tx, user_id: int, planned: Planned) -> None:
    """A message to come. Twice is once, and nothing for a user who was deleted meanwhile."""
    await tx.execute(
        "insert into events (user_id, target_year, target_timestamp_utc)"
        " select id, %s, %s from users where id = %s for key share"
        " on conflict (user_id, event_type, target_year) do nothing",
        [planned.year, planned.due_at, user_id],
    )


async def plan_next(tx: Tx, rules: Rules, user_id: int, year: int) -> None:
    """The message after that of `year`."""
    user = await get(tx, user_id, unchanging=True)  # or it could be planned by clocks that the user has just left
    if user is not None:
        await plan(tx, user.id, following(rules.birthday(user.date_of_birth, user.timezone), year))


async def _plan_anew(tx: Tx, rules: Rules, user: User, now: datetime, *, corrected: bool) -> None:
    """After a move or a correction of the date: see `planned_anew`.

    One whose sending has begun may have arrived: it keeps its year, and its key, which tells the receiver of a second one.
    If its date was corrected to one that has passed, it is given up: a message months late is worse than none.
    """
    birthday = rules.birthday(user.date_of_birth, user.timezone)
    cursor = await tx.execute(
        "select id, target_year, version > 0, status in ('PENDING', 'FAILED', 'PROCESSING') from events"
        " where user_id = %s order by target_year for update",
        [user.id],
    )
    found = await cursor.fetchall()
    years = {year for _, year, *_ in found}
    for event_id, year, begun, waiting in found:
        if not waiting:
            continue
        new = (
            planned_for(birthday, year)
            if begun
            else planned_anew(birthday, year, now, taken=years - {year}, corrected=corrected)
        )
        if new is None:  # there is no such day in that year: it stays where it was
            continue
        if begun and corrected and has_passed(new, now):
            await _give_up(tx, event_id, user, birthday, now, years)
        else:
            await _move(tx, event_id, new, begun=begun)
    if not any(waiting for *_, waiting in found):  # by the zone that the user had, none could be planned
        await plan(tx, user.id, first_after(birthday, now, without=years))


async def _move(tx: Tx, event_id: UUID, new: Planned, *, begun: bool) -> None:
    """To PENDING also what is being sent right now: its outcome is then refused, and it is sent again under the same key."""
    await tx.execute(
        "update events set target_year = %s, target_timestamp_utc = %s, status = 'PENDING', next_attempt_at = null,"
        " version = version + %s where id = %s",
        [new.year, new.due_at, int(begun), event_id],
    )


async def _give_up(tx: Tx, event_id: UUID, user: User, birthday: Yearly, now: datetime, years: set[int]) -> None:
    await tx.execute(
        "update events set status = 'DEAD', next_attempt_at = null, version = version + 1, last_error = %s where id = %s",
        [f"the birthday was corrected to {user.date_of_birth:%d %B} while this was tried, which has passed", event_id],
    )
    await plan(tx, user.id, first_after(birthday, now, without=years))


# -- other rules --------------------------------------------------------------------------------------------------------


async def plan_some_anew(tx: Tx, rules: Rules, *, now: datetime | None = None, most: int = 500) -> bool:
    """When the rules are not those that messages were planned by, plan some more users' anew; whether there may be more.

    A message whose sending has begun stays as it is. Any number of processes may do it at once: they take turns.
    """
    await tx.execute("select pg_advisory_xact_lock(hashtextextended('apps.birthdays planning', 0))")
    cursor = await tx.execute("select rules, planned_until from planning")
    planned_by, until = await cursor.fetchone() or (None, None)
    if planned_by is None:  # the first start
        await tx.execute("insert into planning (rules) values (%s)", [rules.version])
        return False
    if planned_by == rules.version and until is None:
        return False
    users = await _waiting_for_plans(tx, (until if planned_by == rules.version else None) or 0, most)
    at = now or await database_time(tx)
    for user, event_id, year, taken in users:
        try:
            birthday = rules.birthday(user.date_of_birth, user.timezone)
        except (
            ConfigError
        ):  # a zone that was stored by other means, or is gone: it stays where it was, and fails when it is due
            continue
        new = planned_anew(birthday, year, at, taken=taken)
        await tx.execute(
            "update events set target_year = %s, target_timestamp_utc = %s"
            " where id = %s and status = 'PENDING' and version = 0 and (target_year, target_timestamp_utc) <> (%s, %s)",
            [new.year, new.due_at, event_id, new.year, new.due_at],
        )
    more = len(users) == most
    await tx.execute(
        "update planning set rules = %s, planned_until = %s", [rules.version, users[-1][0].id if more else None]
    )
    return more


async def _waiting_for_plans(tx: Tx, after: int, most: int) -> list[tuple[User, UUID, int, list[int]]]:
    """Users from after this one on whose message is not being sent yet, with its year and the years of the others."""
    cursor = await tx.execute(
        "select u.id, first_name, last_name, date_of_birth, timezone, e.id, e.target_year,"
        "       array(select target_year from events where user_id = u.id and id <> e.id)"
        "  from users as u join events as e on e.user_id = u.id and e.status = 'PENDING' and e.version = 0"
        " where u.id > %s and u.date_of_birth between '0001-01-01' and '9999-12-31' order by u.id limit %s for update of u",
        [after, most],
    )
    return [(User(*row[:5]), *row[5:]) for row in await cursor.fetchall()]


async def events(
    tx: Tx, *, user_id: int | None = None, status: str | None = None, most: int = 100
) -> list[dict[str, Any]]:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "select * from events where (%(user)s::bigint is null or user_id = %(user)s)"
            " and (%(status)s::text is null or status = %(status)s) order by target_timestamp_utc, id limit %(most)s",
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


async def late(tx: Tx, grace: timedelta, *, now: datetime | None = None) -> tuple[int, timedelta]:
    """How many messages wait although they were due longer ago than this, and how long ago the oldest was."""
    cursor = await tx.execute(
        "select count(*), coalesce(at - min(target_timestamp_utc), interval '0')"
        "  from events, (select coalesce(%s::timestamptz, now())) as clock(at)"
        " where status in ('PENDING', 'PROCESSING', 'FAILED') and target_timestamp_utc < at - %s group by at",
        [now, grace],
    )
    row = await cursor.fetchone()
    return (0, timedelta()) if row is None else (row[0], row[1])


async def database_time(tx: Tx) -> datetime:
    row = await (await tx.execute("select now()")).fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment
