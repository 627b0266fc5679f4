"""Decides about a schedule that is due: a verdict for each tick, and when it is due next. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b

from trueup.schedules import misfire, overlap
from trueup.schedules.misfire import Fire, PausedSpan, Skip
from trueup.schedules.overlap import Refuse, Replace, RunCounts
from trueup.schedules.policy import SchedulePolicy
from trueup.schedules.when import When

REPLACED = "replaced by the next tick"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One tick that is fired, to run at `run_at`; or `count` in a row that are skipped for a reason."""

    due_at: datetime
    last_due_at: datetime
    count: int
    run_at: datetime | None
    reason: str | None

    @property
    def fired(self) -> bool:
        return self.run_at is not None


@dataclass(frozen=True, slots=True)
class Decision:
    verdicts: tuple[Verdict, ...]
    decided_until: datetime
    next_due: datetime | None
    stop_running: bool  # unfinished runs of earlier ticks are cancelled


def decide(
    name: str,
    when: When,
    policy: SchedulePolicy,
    decided_until: datetime,
    now: datetime,
    runs: RunCounts,
    *,
    failing: bool = False,
) -> Decision:
    """The verdicts on all due ticks. They are skipped if the schedule is `failing`, and so about to be paused."""
    pauses = (PausedSpan(decided_until),) if failing else ()
    plan = misfire.plan(when, decided_until, now, policy.misfire, pauses)
    verdicts: list[Verdict] = []
    stop_running = False
    for found in plan.verdicts:
        match found:
            case Skip(first, last, count, reason):
                verdicts.append(Verdict(first, last, count, None, reason))
            case Fire(due_at):
                action = overlap.decide(policy.overlap, runs, policy.most_queued)
                runs = overlap.after(action, runs)
                if isinstance(action, Replace):
                    stop_running = True
                    verdicts = [_replaced(verdict) for verdict in verdicts]
                if isinstance(action, Refuse):
                    verdicts.append(Verdict(due_at, due_at, 1, None, action.reason))
                else:
                    verdicts.append(Verdict(due_at, due_at, 1, due_at + delay(name, due_at, policy.jitter), None))
    return Decision(tuple(verdicts), plan.watermark, plan.next_due, stop_running)


def _replaced(verdict: Verdict) -> Verdict:
    """A tick that is not fired because a later one, due together with it, would cancel its run."""
    return replace(verdict, run_at=None, reason=REPLACED) if verdict.fired else verdict


_BYTES = 8


def delay(schedule: str, due_at: datetime, jitter: timedelta) -> timedelta:
    """The delay of the run after `due_at`: at least zero, less than `jitter`.

    Drawn from the schedule's name and the tick, so every planner draws the same, and a tick that is planned again keeps it.
    The tick itself, and its lateness, are not moved.
    """
    digest = blake2b(f"{schedule}\0{due_at.timestamp()}".encode(), digest_size=_BYTES).digest()
    microseconds = jitter // timedelta.resolution * int.from_bytes(digest) >> 8 * _BYTES
    return timedelta(microseconds=microseconds)
