"""What the database says while the demo runs. Read only, but for the note of a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection

KINDS = """
select coalesce(a.kind, f.kind), coalesce(a.asked, 0),
       coalesce(f.queued, 0), coalesce(f.running, 0), coalesce(f.done, 0), coalesce(f.dead, 0), coalesce(f.cancelled, 0)
  from (select kind, sum(jobs)::bigint as asked from shop.asked group by kind) as a
  full join (
    select kind, count(*) filter (where state = 'queued') as queued, count(*) filter (where state = 'running') as running,
           count(*) filter (where state = 'done') as done, count(*) filter (where state = 'dead') as dead,
           count(*) filter (where state = 'cancelled') as cancelled
      from (select kind, state from trueup.jobs union all select kind, state from trueup.history) as every
     group by kind) as f on f.kind = a.kind
 order by 2 desc, 1
"""

HOLDERS = """
select w.pid, w.holder, (select count(*) from trueup.jobs as j where j.holder = w.holder)
  from trueup.workers as w where w.rescued_at is null
"""

FINISHED = "select holder, count(*) from trueup.history where holder is not null group by holder"

HELD = """
select count(*), count(*) filter (where exists (select from shop.mails as m where m.key = 'send_mail:' || j.id))
  from trueup.jobs as j where j.holder = any(%s)
"""

TAKEN = """
select count(*)
  from (select errors from trueup.jobs union all select errors from trueup.history) as every
 where exists (select from jsonb_array_elements(errors) as e
                where e ->> 'type' = 'WorkerLost' and e ->> 'message' like '%%pid ' || %s::text || ')')
"""


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    asked: int
    queued: int
    running: int
    done: int
    dead: int
    cancelled: int

    @property
    def ended(self) -> int:
        return self.done + self.dead + self.cancelled


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker process that has its lease, and how many jobs are in its hand."""

    pid: int
    holder: UUID
    jobs: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    kinds: Sequence[Kind]
    holders: Sequence[Holder]
    finished: dict[UUID, int]

    @property
    def asked(self) -> int:
        return sum(kind.asked for kind in self.kinds)

    @property
    def ended(self) -> int:
        return sum(kind.ended for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Held:
    """Jobs in a worker's hand; of those, mails that have been sent although their job is not done."""

    jobs: int
    sent: int


class Books:
    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def snapshot(self) -> Snapshot:
        return Snapshot(
            [Kind(*row) for row in self._connection.execute(KINDS)],
            [Holder(*row) for row in self._connection.execute(HOLDERS)],
            dict(self._connection.execute(FINISHED).fetchall()),
        )

    def held(self, holders: Sequence[UUID]) -> Held:
        (row,) = self._connection.execute(HELD, [list(holders)])
        return Held(*row)

    def taken_over(self, pid: int) -> int:
        """How many jobs were taken from the worker of this process id when its lease had passed."""
        (row,) = self._connection.execute(TAKEN, [pid])
        return int(row[0])

    def note_loss(self, worker: str, pid: int, holders: Sequence[UUID]) -> None:
        """Remember for the proof that from now on nothing may be finished under these names."""
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "insert into shop.losses (worker, pid, holder) values (%s, %s, %s)",
                [(worker, pid, holder) for holder in holders],
            )
