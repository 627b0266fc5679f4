"""Finding jobs by what people know about them, in steps that each look at a bounded range of ids.

A filter that matches little would otherwise read the whole history before it fills a page. A search ends when the page is full,
when nothing is left, or when its time is over; then it says from which id on to continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from trueup.clock import Clock, elapsed
from trueup.jobs.states import JobState
from trueup.store.db.load import Statements
from trueup.store.jobs import Database
from trueup.store.views import Record

FIRST_STEP = 4_000  # ids: a page of everything is found in the first step
GROWTH = 4  # times, after a step that was quick
MAX_STEP = 1_000_000
QUICK = 0.02  # seconds
BEYOND = 2**63 - 1

COLUMNS = (
    *("id", "kind", "queue", "state", "priority", "attempt", "max_attempts", "run_at", "enqueued_at", "claimed_at"),
    *("finished_at", "error", "progress", "reason", "holder", "schedule"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs. What is None or empty does not narrow; everything else must hold."""

    states: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    attempts: int = 0  # at least
    after: datetime | None = None  # enqueued then or later
    until: datetime | None = None  # enqueued before then
    arguments: tuple[tuple[str, str], ...] = ()  # names, with dots into objects, and values as JSON or as text
    error: str | None = None  # part of the last error
    schedule: str | None = None

    def params(self) -> dict[str, Any]:
        return {
            "states": list(self.states or map(str, JobState)),
            "kinds": list(self.kinds) or None,
            "queues": list(self.queues) or None,
            "attempts": self.attempts,
            "after": self.after,
            "until": self.until,
            "args": _contained(self.arguments, as_text=False) if self.arguments else None,
            "args_as_text": _contained(self.arguments, as_text=True) if self.arguments else None,
            "error": self.error or None,
            "schedule": self.schedule or None,
        }


@dataclass(frozen=True, slots=True)
class Page:
    """`before` continues the search; None when everything was looked at. `searched` when it ended because its time was over."""

    jobs: list[Record]
    before: int | None
    searched: bool = False


class Search:
    def __init__(self, database: Database, statements: Statements, clock: Clock) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock

    async def page(self, wanted: Wanted, *, limit: int = 50, before: int | None = None, within: float = 0.15) -> Page:
        """The newest matches below `before`. Looks for about `within` seconds, and at least at one range."""
        params, found, step = wanted.params(), list[Record](), FIRST_STEP
        deadline, at = elapsed() + within, await self._newest(params, BEYOND if before is None else before)
        while at is not None:
            begun, least = elapsed(), max(0, at + 1 - step)
            rows = await self._fetch("page", **params, least=least, before=at + 1, limit=limit + 1 - len(found))
            found += [dict(zip(COLUMNS, row, strict=True)) for row in rows]
            if len(found) > limit:
                return Page(found[:limit], found[limit - 1]["id"])
            at = await self._newest(params, least)
            if elapsed() > deadline:
                return Page(found, None if at is None else at + 1, searched=at is not None)
            if elapsed() - begun < QUICK:
                step = min(step * GROWTH, MAX_STEP)
        return Page(found, None)

    async def count(self, state: str, most: int) -> int:
        """How many ended jobs are in a state, or `most` when there are that many or more."""
        ((count,),) = await self._fetch("count", state=state, most=most)
        return int(count)

    async def _newest(self, params: dict[str, Any], before: int) -> int | None:
        ((newest,),) = await self._fetch("newest", states=params["states"], before=before)
        return None if newest is None else int(newest)

    async def _fetch(self, name: str, **params: Any) -> Sequence[Sequence[Any]]:
        return await self._database.fetch(self._statements[f"search/{name}"], {"now": self._clock.now(), **params})


def _contained(arguments: Sequence[tuple[str, str]], *, as_text: bool) -> str:
    """A JSON object that matching arguments contain."""
    wanted: dict[str, Any] = {}
    for name, written in arguments:
        inner = wanted
        *path, last = name.split(".")
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                break
        else:
            inner[last] = written if as_text else _read(written)
    return orjson.dumps(wanted).decode()


def _read(written: str) -> Any:
    try:
        return orjson.loads(written)
    except ValueError:
        return written
