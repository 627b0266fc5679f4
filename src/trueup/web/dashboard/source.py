"""An App that the dashboard shows: its name, its queries, and answers that are shared for a moment.

Many open tabs must not mean many statements: pages ask through `shared`, which looks once and gives every tab the same answer
until it is older than a second, or ten times as old as the look took. Pages that follow by themselves keep every answer for fifty
times as long as all their looks take together: they take a fiftieth of a core at most, however many tabs show however much. Counts
of users' rows may wait for locks, so they share another fiftieth and do not make the rest of a page old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar, cast

from trueup.app import App
from trueup.clock import elapsed
from trueup.errors import ConfigError
from trueup.store.db.own_connection import Record
from trueup.store.explained import Explained
from trueup.store.flow import Flow
from trueup.store.rows.quarantine import Quarantine
from trueup.store.store import Store
from trueup.web.dashboard.dry_runs import DryRuns

T = TypeVar("T")

FRESH = 1.0  # seconds
TIMES = 10  # as long as the look took, for a page that a person asks for
LIVE_TIMES = 50  # as long as all looks took, for pages that follow by themselves
# Seconds that an answer counts among those since a live page asked for it, and is kept at most for their sake.
LIVE_FOR = 60.0
MAX_KEPT = 256  # answers
COUNTS = 4  # of users' tables at a time: each has a connection of its own


@dataclass(frozen=True, slots=True)
class Answer:
    answer: Any
    at: float
    took: float  # seconds
    beside: bool


class Source:
    def __init__(self, name: str, app: App) -> None:
        self.name = name
        self.app = app
        self.dry_runs = DryRuns()
        self.counts = asyncio.Semaphore(COUNTS)
        self._opened: tuple[Store, asyncio.AbstractEventLoop] | None = None
        self._follows = False
        self._followed: dict[object, float] = {}  # when a live page has asked for each
        self._kept: dict[object, Answer] = {}
        self._asked: dict[object, asyncio.Task[Any]] = {}

    async def open(self) -> Store:
        loop = asyncio.get_running_loop()
        if self._opened is None or self._opened[1] is not loop:
            self._opened = (await self.app.open(), loop)
            self.counts = asyncio.Semaphore(COUNTS)
            self._kept.clear()
            self._asked.clear()
        return self._opened[0]

    def followed(self) -> Self:
        """The same source for a live page, which accepts older answers where a new one would cost much."""
        same = copy(self)
        same._follows = True
        return same

    def explained(self) -> Explained:
        """A block, already entered, in which database errors are explained."""
        return self.app.store.explained()

    @property
    def flow(self) -> Flow:
        store = self.app.store
        return Flow(store.pool, store.statements)

    async def workers(self) -> list[Record]:
        """All registered workers; every part of a page that asks gets the same answer."""
        return await self.shared("workers", self.app.store.views.fleet)

    async def queues(self) -> list[Record]:
        return await self.shared("queues", self.app.store.views.queues)

    @property
    def quarantine(self) -> Quarantine:
        store = self.app.store
        return Quarantine(store.pool, store.statements)

    async def shared(
        self, key: object, look: Callable[[], Awaitable[T]], fresh: float = FRESH, *, beside: bool = False
    ) -> T:
        """The answer of `look`, from the cache if it was asked a moment ago.

        One that may take long goes `beside` the others: live pages keep those for the time that they take themselves.
        """
        now = elapsed()
        if self._follows:
            self._followed[key] = now
        kept = self._kept.get(key)
        if kept is not None and now - kept.at < max(fresh, self._keeps(kept, now)):
            return cast(T, kept.answer)
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(self._look(key, look, beside))
            task.add_done_callback(partial(self._looked, key))
        return cast(T, await asyncio.shield(task))

    def _keeps(self, kept: Answer, now: float) -> float:
        """For how many seconds this answer is valid."""
        if not self._follows:
            return TIMES * kept.took
        live = [
            each.took
            for key, each in self._kept.items()
            if each.beside == kept.beside and now - self._followed.get(key, -LIVE_FOR) < LIVE_FOR
        ]
        return min(LIVE_TIMES * sum(live), LIVE_FOR)

    async def _look(self, key: object, look: Callable[[], Awaitable[T]], beside: bool) -> T:
        begun = elapsed()
        answer = await look()
        ended = elapsed()
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
            self._followed.clear()
        if self._asked.get(key) is asyncio.current_task():  # no action happened meanwhile, see `forget`
            self._kept[key] = Answer(answer, ended, ended - begun, beside)
        return answer

    def _looked(self, key: object, look: asyncio.Task[Any]) -> None:
        if self._asked.get(key) is look:
            del self._asked[key]
        if not look.cancelled():
            look.exception()  # the waiting pages have it

    def forget(self) -> None:
        """Call this after an action: the next page queries again. The answer of a query that is under way may be older than the
        action, and is not kept."""
        self._kept.clear()
        self._asked.clear()


def sources(apps: App | Iterable[App] | Mapping[str, App]) -> dict[str, Source]:
    """By name: as given, or by the schema of each. Raises ConfigError for two of one name, or for none."""
    if isinstance(apps, Mapping):
        named = dict(apps)
    else:
        listed = [apps] if isinstance(apps, App) else list(apps)
        named = {app.settings.schema: app for app in listed}
        if len(named) != len(listed):
            raise ConfigError("two Apps of the dashboard have the same schema; name them: {'shop': app, 'mail': other}")
    if not named:
        raise ConfigError("the dashboard needs an App")
    for name in named:
        if name == "api" or name.startswith("-") or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"{name!r} cannot be part of a URL; name the App with letters, digits, - and _")
    return {name: Source(name, app) for name, app in named.items()}
