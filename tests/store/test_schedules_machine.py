"""A schedule: planned late or in time, paused, resumed, changed and deleted, at any time."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.store.machine import Bench, bench_on, try_out
from trueup.schedules import Cron
from trueup.schedules.policy import SchedulePolicy
from trueup.store.schedules import Entry

NAME = "nightly"
MINUTE = timedelta(minutes=1)
LEDGER = "select due_at, last_due_at, count, outcome, reason from trueup.ticks"
RUNS = "select due_at from trueup.jobs where schedule is not null"
AFTER = st.sampled_from([0, 30, 59, 60, 61, 300, 1_800])  # seconds before a step


def minutes(after: datetime, until: datetime) -> set[datetime]:
    """Whole minutes after a moment, up to another, counted one by one: nothing of a cron parser is in it."""
    first = after.replace(second=0, microsecond=0) + MINUTE
    return {first + n * MINUTE for n in range(max(0, int((until - first) / MINUTE) + 1)) if first + n * MINUTE <= until}


class SchedulesMachine(RuleBasedStateMachine):
    """The schedule is due every minute. The model knows since when it is active, and which of its ticks have been settled."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        bench.clear("trueup.schedules", "trueup.schedule_versions", "trueup.ticks", "trueup.jobs", "trueup.history")
        self.state: Literal["none", "active", "paused"] = "none"
        self.settled_until = bench.clock.now()
        self.expected: set[datetime] = set()

    @property
    def now(self) -> datetime:
        return self.bench.clock.now()

    def settle(self) -> None:
        """Everything due by now has its verdict, if the schedule was active."""
        if self.state == "active":
            self.expected |= minutes(self.settled_until, self.now)
        self.settled_until = self.now

    @rule(after=AFTER, missed=st.sampled_from(["latest", "all", "skip"]), grace=st.sampled_from([60, 600]))
    def put(self, after: int, missed: Literal["latest", "all", "skip"], grace: int) -> None:
        self.bench.clock.advance(seconds=after)
        policy = SchedulePolicy(missed=missed, grace=timedelta(seconds=grace), overlap="allow")
        entry = Entry(NAME, "people", Cron("* * * * *"), policy, "send", "default", "default", 4)
        self.bench.run(self.bench.store.schedules.put(entry))
        self.settle()
        if self.state == "none":
            self.state = "active"

    @rule(after=AFTER)
    def plan(self, after: int) -> None:
        self.bench.clock.advance(seconds=after)
        while self.bench.run(self.bench.store.schedules.plan()).more:
            pass
        self.settle()

    @rule(after=AFTER)
    def pause(self, after: int) -> None:
        self.bench.clock.advance(seconds=after)
        changed = self.bench.run(self.bench.store.schedules.pause([NAME], "why"))
        assert changed == ({NAME} if self.state == "active" else set())
        self.settle()
        self.state = "paused" if changed else self.state

    @rule(after=AFTER)
    def resume(self, after: int) -> None:
        self.bench.clock.advance(seconds=after)
        changed = self.bench.run(self.bench.store.schedules.resume([NAME]))
        assert changed == ({NAME} if self.state == "paused" else set())
        self.settle()
        self.state = "active" if changed else self.state

    @rule(after=AFTER)
    def delete(self, after: int) -> None:
        self.bench.clock.advance(seconds=after)
        assert self.bench.run(self.bench.store.schedules.delete(NAME)) == (self.state != "none")
        self.settle()
        self.state = "none"

    @invariant()
    def every_tick_that_was_settled_has_one_verdict_and_every_fired_one_its_run(self) -> None:
        verdicts: Counter[datetime] = Counter()
        fired: Counter[datetime] = Counter()
        for first, last, count, outcome, reason in self.bench.query(LEDGER):
            stands_for = [first + n * MINUTE for n in range(count)]
            assert stands_for[-1] == last
            assert (outcome == "fired") == (reason is None)
            verdicts.update(stands_for)
            fired.update(stands_for if outcome == "fired" else ())
        assert verdicts == Counter(self.expected)
        assert fired == Counter(due_at for (due_at,) in self.bench.query(RUNS))


@pytest.mark.slow
def test_schedules_follow_their_model_whatever_comes_in_whatever_order(database_url: str) -> None:
    with bench_on(database_url) as bench:
        try_out(lambda: SchedulesMachine(bench), few=8, proof=150)
