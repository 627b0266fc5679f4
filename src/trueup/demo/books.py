"""The demo's queries. They only read, except for the demo's own records and the user who leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import Connection

MESSAGES = """
select count(*), count(*) filter (where e.status = 'PENDING'), count(*) filter (where e.status = 'PROCESSING'),
       count(*) filter (where e.status = 'COMPLETED'), count(*) filter (where e.status = 'FAILED'),
       count(*) filter (where e.status = 'DEAD'), count(*) filter (where e.id is null)
  from demo.expected as x left join events as e on e.id = x.event_id
 where x.fate <> 'later'
"""

PLANNED = """
select count(*) filter (where x.fate <> 'later'), count(*) filter (where x.fate = 'later'), count(distinct u.timezone)
  from demo.expected as x join users as u on u.id = x.user_id
"""

HOLDERS = "select pid, holder from trueup.workers"

IN_HAND = "select holder, count(*) from trueup.rows where state = 'held' group by holder"

FRONT = """
select now() - e.target_timestamp_utc, u.timezone
  from events as e join users as u on u.id = e.user_id
 where e.status = 'COMPLETED' order by e.target_timestamp_utc desc, e.executed_at desc limit 1
"""

RESTING = "select coalesce(bool_or(pauses > 0), false) from trueup.reconcilers"

HELD = "select key, term, due_at, due_at <= now() from trueup.rows where state = 'held' and holder = any(%s)"

FINISHED_ALL_THE_SAME = """
delete from demo.losses as l
 where now() < l.lease_until
   and not exists (select from trueup.rows as r where r.key = l.key and r.term = l.term and r.state = 'held')
"""

STILL_LOST = """
select count(*) from demo.losses as l join trueup.rows as r on r.key = l.key and r.term = l.term where r.state = 'held'
"""

LAST_IN_LINE = """
with last as (
  select x.event_id, x.user_id, u.first_name || ' ' || u.last_name as name, u.timezone
    from demo.expected as x join events as e on e.id = x.event_id join users as u on u.id = x.user_id
   where x.fate = 'delivered' and e.status = 'PENDING' order by x.due_at desc, x.user_id desc limit 1
), gone as (
  delete from users where id = (select user_id from last)
)
update demo.expected as x set fate = 'withdrawn' from last where x.event_id = last.event_id returning last.name, last.timezone
"""


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages that fell due during the downtime, by their state."""

    due: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead: int
    withdrawn: int

    @property
    def ended(self) -> int:
        return self.completed + self.dead + self.withdrawn


@dataclass(frozen=True, slots=True)
class Front:
    """The progress of the fleet: the delivered message that was due last."""

    lateness: timedelta
    timezone: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    messages: Messages
    holders: dict[UUID, int]  # process ids
    in_hand: dict[UUID, int]
    front: Front | None
    resting: bool  # the circuit breaker is open: the fleet waits for the receiver


@dataclass(frozen=True, slots=True)
class PlannedYesterday:
    """The messages that were planned yesterday."""

    due: int
    later: int
    zones: int


@dataclass(frozen=True, slots=True)
class Held:
    """A message that a worker has claimed."""

    key: str
    term: int
    lease_until: datetime
    expired: bool


class Books:
    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def snapshot(self) -> Snapshot:
        execute = self._connection.execute
        (messages,) = execute(MESSAGES)
        (resting,) = execute(RESTING)
        front = execute(FRONT).fetchone()
        return Snapshot(
            Messages(*messages),
            {holder: pid for pid, holder in execute(HOLDERS)},
            dict(execute(IN_HAND).fetchall()),
            None if front is None else Front(*front),
            resting[0],
        )

    def planned(self) -> PlannedYesterday:
        (row,) = self._connection.execute(PLANNED)
        return PlannedYesterday(*row)

    def held(self, holders: Sequence[UUID]) -> list[Held]:
        return [Held(*row) for row in self._connection.execute(HELD, [list(holders)])]

    def note_loss(self, worker: str, held: Sequence[Held]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "insert into demo.losses (worker, key, term, lease_until) values (%s, %s, %s, %s)",
                [(worker, each.key, each.term, each.lease_until) for each in held],
            )

    def forget_finished(self) -> None:
        """A message that a lost worker no longer holds although its lease has not expired was finished by a statement that the
        worker had sent before. Call this often until the leases have expired."""
        self._connection.execute(FINISHED_ALL_THE_SAME)

    def still_lost(self) -> int:
        """How many messages of the lost workers no other worker has taken over yet."""
        (row,) = self._connection.execute(STILL_LOST)
        return int(row[0])

    def withdraw_last(self) -> tuple[str, str] | None:
        """Delete the user whose message is last in the queue, and the message. Returns name and zone."""
        return self._connection.execute(LAST_IN_LINE).fetchone()
