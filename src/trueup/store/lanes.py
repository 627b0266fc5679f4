"""Claiming through a lane: one worker at a time for the whole fleet, within the lane's limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from trueup.jobs.job import ClaimedJob
from trueup.jobs.limits import AHEAD, LANE_PREFIX, Controls, Grant, grant
from trueup.store.db.load import Statements
from trueup.store.db.message import Conversation, Fetched, Query, array, numbers
from trueup.store.db.repository import Database, Repository
from trueup.store.jobs import MAX_CLAIM_BYTES

MAX_KEYS = 500  # keys looked at in one claim; the next claim goes on after the last of them
JOB_COLUMNS = 19  # of a claimed row; what follows is about the lane


@dataclass(frozen=True, slots=True)
class LaneClaim:
    """Jobs, and how long after `granted_at` each may start; and when to ask again.

    `ask_again_after`: the rate allows the next start only then. `more`: the lane may allow more, and have more, than was asked
    for. `full`: it is at its limit, and only the end of a job changes that. `unseen`: nothing was found, and some keys
    were not looked at.
    """

    jobs: list[tuple[ClaimedJob, timedelta]] = field(default_factory=list)
    ask_again_after: timedelta | None = None
    granted_at: float = 0.0  # by this process' monotonic clock
    more: bool = False
    full: bool = False
    busy: bool = False  # another worker is claiming through the lane
    unseen: bool = False


@dataclass(slots=True)
class _Found:
    """What the claims of one transaction have found."""

    jobs: list[ClaimedJob] = field(default_factory=list)
    room: int = 0  # how many the lane's limits allowed
    last_key: str | None = None  # the key whose turn was last, if that is to be stored
    unseen: bool = False  # some keys were not looked at

    @property
    def moved(self) -> bool:
        """Whether the lane's row is to be updated."""
        return bool(self.jobs) or self.last_key is not None


class Offset:
    """How far this process' clock is from the database's.

    This process may read a reply long after it was sent on a busy machine. The quickest replies are the most accurate, as long
    as the time they report lies between sending and receiving.
    """

    def __init__(self) -> None:
        self._least = float("inf")

    def locally(self, moment: float, sent: float, received: float) -> float:
        """Convert a time of the database's clock to this process's clock. It was read between these two times of the latter."""
        self._least = max(min(self._least, received - moment), sent - moment)
        return moment + self._least


class Lanes(Repository):
    def __init__(self, database: Database, statements: Statements) -> None:
        super().__init__(database, statements)
        self._offset = Offset()

    async def register(self, lanes: Sequence[str]) -> None:
        await self._fetch("lanes/register", lanes=list(lanes))

    async def waiting(self, lanes: Mapping[str, Controls | None]) -> dict[str, float | None]:
        """In how many seconds something can be claimed from each lane that has jobs; None when the lane is at its limit."""
        controls = list(lanes.values())
        rows = await self._fetch(
            "lanes/waiting",
            ahead=AHEAD.total_seconds(),
            lanes=array(list(lanes)),
            totals=array([each.limit.total if each and each.limit else None for each in controls]),
            spacings=array([each.rate.spacing.total_seconds() if each and each.rate else None for each in controls]),
        )
        return dict(rows)

    async def tell(self, lane: str) -> None:
        """Wake the workers that listen: the lane may have room."""
        await self._fetch("session/notify", payload=f"{lane} 0")

    async def claim(
        self,
        holder: UUID,
        lane: str,
        controls: Controls,
        most: int,
        max_bytes: int = MAX_CLAIM_BYTES,
        queue: str = "",
        only: Sequence[int] | None = None,
    ) -> LaneClaim:
        """queued -> running within the lane's limits. Empty at once when another worker is claiming through the lane.

        `queue` is that of the lane's jobs: nothing is claimed while it is paused. `only` of these jobs, if any are named.
        """
        place = {
            "now": self._clock.now(),
            "holder": holder,
            "lane": lane,
            "queue": queue,
            "kind": lane.removeprefix(LANE_PREFIX),
            "total": controls.limit.total if controls.limit else None,
            "per_key": controls.limit.per_key if controls.limit else None,
            "bytes": max_bytes,
            "only": None if only is None else numbers(only),
        }
        async with self._database.conversation() as talk:
            return await self._claim(talk, place, controls, most)

    async def _claim(self, talk: Conversation, place: Mapping[str, Any], controls: Controls, most: int) -> LaneClaim:
        """`place`: what all statements of this claim are about, as their parameters."""
        lane = place["lane"]
        lock = Query(self._statements["lanes/lock"], {"now": place["now"], "lane": lane})
        sent = self._clock.elapsed()
        locked = (await talk.send(self._statements["session/steer"], lock)).rows(1)
        received = self._clock.elapsed()
        if not locked:
            await talk.end()
            return LaneClaim(busy=True)
        started_at, next_start_at, last_key = locked[0]
        granted_at = self._offset.locally(started_at.timestamp(), sent, received)
        granted = grant(controls.rate, next_start_at, started_at, most)
        if not granted.slots:
            await talk.end()
            return LaneClaim(ask_again_after=granted.wait)
        found = await self._find(talk, place, controls, last_key, len(granted.slots))
        advance = {
            "lane": lane,
            "next_start_at": granted.next_start_at(len(found.jobs), controls.rate),
            "last_key": found.last_key,
        }
        await talk.end(*([Query(self._statements["lanes/advance"], advance)] if found.moved else []))
        return _answer(found, granted, granted_at, controls, most, place["bytes"])

    async def _find(
        self, talk: Conversation, place: Mapping[str, Any], controls: Controls, last_key: str, most: int
    ) -> _Found:
        if controls.fair_by is None:
            rows = await self._ask(talk, "lanes/claim", {**place, "most": most})
            return _Found(_jobs(place["holder"], rows), rows[0][JOB_COLUMNS] or 0)
        turns = {**place, "most": most, "last_key": last_key, "keys": MAX_KEYS}
        rows = await self._ask(talk, "lanes/turns", turns)
        room, seen, last_seen = rows[0][JOB_COLUMNS:]
        found = _Found(_jobs(place["holder"], rows), room or 0)
        if found.jobs:
            found.last_key = found.jobs[-1].key
        if len(found.jobs) < found.room and seen >= MAX_KEYS:
            # Few of these keys have a due job. The turn passes them all, and jobs of keys further on come by their rank.
            found.last_key, left = last_seen, found.room - len(found.jobs)
            rows = await self._ask(talk, "lanes/claim", {**place, "most": left})
            found.jobs += _jobs(place["holder"], rows)
            found.unseen = not found.jobs
        return found

    async def _ask(self, talk: Conversation, statement: str, params: Mapping[str, Any]) -> Fetched:
        return (await talk.send(Query(self._statements[statement], params))).rows(0)


def _jobs(holder: UUID, rows: Fetched) -> list[ClaimedJob]:
    """Without jobs there is one row that only tells about the lane."""
    return [ClaimedJob(holder, *row[:JOB_COLUMNS]) for row in rows if row[0] is not None]


def _answer(
    found: _Found, granted: Grant, granted_at: float, controls: Controls, most: int, max_bytes: int
) -> LaneClaim:
    slots, used = len(granted.slots), len(found.jobs)
    after = granted.next_start_at(used, controls.rate)
    cut = 4 * sum(len(job.args) for job in found.jobs) >= max_bytes  # characters have up to four bytes
    return LaneClaim(
        [(job, granted.start_after(position)) for position, job in enumerate(found.jobs)],
        max(after - granted.now - AHEAD, timedelta()) if after is not None and used == slots < most else None,
        granted_at,
        more=used == most or cut,
        full=used == found.room < slots,
        unseen=found.unseen,
    )
