"""Decides about a due tick while runs of its schedule's earlier ticks are unfinished."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never, get_args

from trueup.errors import ConfigError

Overlap: TypeAlias = Literal["skip", "queue_one", "queue_all", "cancel_running", "allow"]

MAX_QUEUED = 100  # waiting runs of one schedule; with more it would never catch up


@dataclass(frozen=True, slots=True)
class RunCounts:
    """How many runs of a schedule are running, and how many wait for their turn or their next attempt."""

    running: int = 0
    waiting: int = 0

    @property
    def any(self) -> bool:
        return self.running + self.waiting > 0


@dataclass(frozen=True, slots=True)
class Start:
    """Fire it; it may run at once."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Fire it; it runs when the earlier runs have finished."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Cancel the unfinished runs and fire it; it runs when they have ended."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Skip it, for this reason."""

    reason: str


Action: TypeAlias = Start | Queue | Replace | Refuse


def decide(overlap: Overlap, runs: RunCounts, most_queued: int = MAX_QUEUED) -> Action:
    """The decision about the next due tick, given the runs of earlier ticks."""
    if overlap == "allow" or not runs.any:
        return Start()
    match overlap:
        case "skip":
            return Refuse("still running" if runs.running else "still waiting to run")
        case "queue_one":
            return Queue() if not runs.waiting else Refuse("one is waiting already")
        case "queue_all":
            return Queue() if runs.waiting < most_queued else Refuse(f"{runs.waiting} are waiting already")
        case "cancel_running":
            return Replace()
        case _:
            assert_never(overlap)


def after(action: Action, runs: RunCounts) -> RunCounts:
    """The runs that the next of several ticks due together finds."""
    match action:
        case Start() | Queue():
            return RunCounts(runs.running, runs.waiting + 1)
        case Replace():
            return RunCounts(waiting=1)
        case Refuse():
            return runs


def checked(overlap: str) -> Overlap:
    """The policy with that name. Raises ConfigError if there is none."""
    for known in get_args(Overlap):
        if overlap == known:
            policy: Overlap = known
            return policy
    raise ConfigError(f"overlap={overlap!r}: it is one of {', '.join(get_args(Overlap))}")
