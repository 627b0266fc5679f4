"""Messages that are old enough to be forgotten."""

from __future__ import annotations

from datetime import datetime

from .database import Tx

DELETE = """
delete from messages where id = any(array(
  select id from messages where created_at < %(before)s order by created_at limit %(most)s for update skip locked))
"""


async def delete_some(tx: Tx, before: datetime, most: int) -> int:
    """Up to so many, oldest first. Returns how many there were; none: none is left that nobody else is busy with."""
    return (await tx.execute(DELETE, {"before": before, "most": most})).rowcount
