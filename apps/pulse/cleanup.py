"""Messages that are old enough to be forgotten, and conversations of which nothing is left."""

from __future__ import annotations

from datetime import datetime

from . import database
from .database import Tx

DELETE = """
delete from messages where id = any(array(
  select id from messages where created_at < %(before)s order by created_at limit %(most)s for update skip locked))
"""


WAITING = """
select (select count(*) from messages where created_at < %(before)s)::int as messages,
       (select count(*) from conversations as c where created_at < %(before)s
           and not exists (select from messages where conversation_id = c.id)
       )::int as conversations
"""
# Locked first and looked at once more by the next statement: a message that came in between keeps its conversation.
LOCK_EMPTY = """
select id from conversations as c
 where created_at < %(before)s and not exists (select from messages where conversation_id = c.id)
 order by created_at limit %(most)s for update skip locked
"""
DELETE_EMPTY = """
delete from conversations as c where id = any(%(ids)s) and not exists (select from messages where conversation_id = c.id)
"""


async def waiting(tx: Tx, before: datetime) -> tuple[int, int]:
    """How many old messages there are, and how many old conversations without any message."""
    found = await database.one(tx, WAITING, {"before": before})
    assert found is not None
    return found["messages"], found["conversations"]


async def delete_some_empty(tx: Tx, before: datetime, most: int) -> int:
    """A limited number of conversations that are as old and have no message left."""
    locked = await database.rows(tx, LOCK_EMPTY, {"before": before, "most": most})
    return (await tx.execute(DELETE_EMPTY, {"ids": [row["id"] for row in locked]})).rowcount


async def delete_some(tx: Tx, before: datetime, most: int) -> int:
    """Up to that many, oldest first. Returns how many there were; 0 when all that are left are locked by others."""
    return (await tx.execute(DELETE, {"before": before, "most": most})).rowcount
