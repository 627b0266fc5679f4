"""All protocols that are modelled, with their guards and the bounds within which they are explored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.model import jobs, runs, ticks
from tests.model.explorer import Checkable, Counterexample, Guard


@dataclass(frozen=True)
class Checked:
    """What an exploration found. Its states are not kept: they are half a million objects."""

    states: int
    transitions: int
    statements: frozenset[str]
    broken: Counterexample | None


@dataclass(frozen=True, eq=False)
class Modelled:
    name: str
    make: Callable[..., Checkable]
    guards: tuple[Guard, ...]
    bounds: Mapping[str, dict[str, Any]]

    @cache  # noqa: B019 - there are three of them, for good
    def check(self, bounds: str, *without: str) -> Checked:
        found, broken = self.make(without=without, **self.bounds[bounds]).check()
        return Checked(found.states, found.transitions, frozenset(found.statements), broken)

    def guard(self, name: str) -> Guard:
        return next(guard for guard in self.guards if guard.name == name)


PROTOCOLS = (
    Modelled("jobs", jobs.JobProtocol, jobs.GUARDS, jobs.BOUNDS),
    Modelled("ticks", ticks.TickProtocol, ticks.GUARDS, ticks.BOUNDS),
    Modelled("runs of ticks", runs.RunProtocol, runs.GUARDS, runs.BOUNDS),
)
