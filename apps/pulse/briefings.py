"""Briefings: for each user whose hour has come on the clocks where they live, once for each day on their calendar."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from . import database
from .database import Tx
from .dates import Clock

ZONES = "select distinct timezone from users order by 1"
# Whose hour has come today, where they are, and who has not had one yet.
DUE = """
select u.id, u.name, c.day, count(p.id)::int as projects,
       count(p.id) filter (where p.health_level in ('WARNING', 'CRITICAL'))::int as unwell,
       coalesce(sum(t.open), 0)::int as open, coalesce(sum(t.blocked), 0)::int as blocked
  from users as u
  join unnest(%(zones)s::text[], %(days)s::date[], %(hours)s::int[]) as c (timezone, day, hour)
    on c.timezone = u.timezone and u.briefing_hour <= c.hour
  left join members as m on m.user_id = u.id
  left join projects as p on p.id = m.project_id and p.status = 'ACTIVE'
  left join lateral (select count(*) filter (where status <> 'DONE') as open, count(*) filter (where status = 'BLOCKED') as blocked
                       from tasks where project_id = p.id) as t on true
 where not exists (select from briefings as b where b.user_id = u.id and b.day = c.day)
 group by u.id, u.name, c.day
 order by u.id limit %(most)s
"""
INSERT = """
insert into briefings (user_id, day, text) values (%(id)s, %(day)s, %(text)s) on conflict (user_id, day) do nothing
"""


def text(name: str, day: date, projects: int, unwell: int, open: int, blocked: int) -> str:
    return (
        f"Good morning, {name}. {day:%A %d %B}: {projects} active projects, {unwell} of them not well; "
        f"{open} open tasks, {blocked} of them blocked."
    )


async def zones(tx: Tx) -> list[str]:
    return [row["timezone"] for row in await database.rows(tx, ZONES)]


async def due(tx: Tx, clocks: Sequence[Clock], most: int) -> list[dict[str, Any]]:
    """Users whose hour has come and who have had none today, up to `most` of them, with what there is to tell them."""
    params: dict[str, Any] = {
        "zones": [clock.timezone for clock in clocks],
        "days": [clock.day for clock in clocks],
        "hours": [clock.hour for clock in clocks],
        "most": most,
    }
    return await database.rows(tx, DUE, params)


async def make_some(tx: Tx, clocks: Sequence[Clock], most: int) -> int:
    """For up to `most` users. Returns how many there were; fewer than `most` means that these were the last."""
    users = await due(tx, clocks, most)
    async with tx.cursor() as cursor:
        for user in users:
            facts = {key: value for key, value in user.items() if key != "id"}
            await cursor.execute(INSERT, {"id": user["id"], "day": user["day"], "text": text(**facts)})
    return len(users)


async def of_user(tx: Tx, user_id: int, most: int) -> list[dict[str, Any]]:
    return await database.rows(
        tx,
        "select day, text, created_at from briefings where user_id = %(user)s order by day desc limit %(most)s",
        {"user": user_id, "most": most},
    )
