"""Reminders of checkpoints: one statement for all of them, and each once by its key."""

from __future__ import annotations

from datetime import date
from typing import Any

from . import database
from .database import Tx
from .dates import REMINDED

REMIND = """
insert into reminders (checkpoint_id, due_on, kind, days_left)
select c.id, c.due_on, k.kind, c.due_on - %(today)s
  from checkpoints as c
  join projects as p on p.id = c.project_id and p.status = 'ACTIVE'
  join unnest(%(kinds)s::text[], %(least)s::int[], %(most)s::int[]) as k (kind, least, most)
    on c.due_on - %(today)s between k.least and k.most
 where not c.done and c.due_on between %(today)s and %(today)s + 3
on conflict (checkpoint_id, due_on, kind) do nothing
returning checkpoint_id, due_on, kind, days_left, (select title from checkpoints where id = checkpoint_id) as title
"""


async def remind(tx: Tx, today: date) -> list[dict[str, Any]]:
    """Remind of what is due today, tomorrow, or within three days and was not yet reminded of. Returns these reminders."""
    params = {
        "today": today,
        "kinds": list(REMINDED),
        "least": [least for least, _ in REMINDED.values()],
        "most": [most for _, most in REMINDED.values()],
    }
    return await database.rows(tx, REMIND, params)


async def latest(tx: Tx, most: int) -> list[dict[str, Any]]:
    return await database.rows(
        tx,
        "select r.checkpoint_id, c.title, r.due_on, r.kind, r.days_left, r.created_at"
        "  from reminders as r join checkpoints as c on c.id = r.checkpoint_id order by r.created_at desc limit %(most)s",
        {"most": most},
    )
