"""Dry runs that operators start: the rows that the next sweep or scan would take, and with `shadow` what its handler would do.

A dry run may call users' code (a handler in shadow, or the generator of a scan), so it only follows a form or request that writes
need, never a look at a page. The latest one of each reconciler is kept in this process for its page; it ends with the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trueup.errors import ConfigError
from trueup.operate.runs import DryRun
from trueup.program import typed

MAX_ROWS = 100  # in one dry run, on a page and in an answer of the API
ROWS = 20  # the default
TIMEOUT = 60.0  # seconds: a person waits for the page


@dataclass(frozen=True, slots=True)
class Looked:
    """A dry run as pages show it: its texts are redacted and masked."""

    name: str
    would: str
    rows: list[dict[str, Any]]
    more: bool
    total: int | None
    why: str | None
    shadow: bool
    by: str
    at: datetime

    @property
    def is_scan(self) -> bool:
        return any("item" in row for row in self.rows)


class DryRuns:
    """The latest dry run of each reconciler of one App."""

    def __init__(self) -> None:
        self._latest: dict[str, Looked] = {}
        self._underway: set[str] = set()

    def latest(self, name: str) -> Looked | None:
        return self._latest.get(name)

    def keep(self, looked: Looked) -> Looked:
        self._latest[looked.name] = looked
        return looked

    async def make(self, name: str, run: Callable[[], Awaitable[DryRun]]) -> DryRun:
        """One at a time for each reconciler. Raises ConfigError when one is under way, or takes too long."""
        if name in self._underway:
            raise ConfigError(f"a dry run of {name!r} is under way; wait for it to end")
        self._underway.add(name)
        try:
            async with asyncio.timeout(TIMEOUT) as patience:
                return await run()
        except TimeoutError:
            if not patience.expired():
                raise
            raise ConfigError(
                f"the dry run of {name!r} was stopped after {TIMEOUT:g} seconds; give it fewer rows, "
                f"or run `{typed(f'trueup reconcilers run {name} --dry-run')}`, which waits"
            ) from None
        finally:
            self._underway.discard(name)
