from __future__ import annotations

import pytest

from trueup.errors import ConfigError
from trueup.schedules.overlap import Action, Overlap, Queue, Refuse, Replace, RunCounts, Start, after, checked, decide

FREE, RUNNING, WAITING, BOTH = RunCounts(), RunCounts(running=1), RunCounts(waiting=1), RunCounts(running=1, waiting=1)


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "queue_all", "cancel_running", "allow"])
def test_a_tick_starts_when_nothing_is_unfinished(overlap: Overlap) -> None:
    assert decide(overlap, FREE) == Start()


@pytest.mark.parametrize(
    ("overlap", "runs", "action"),
    [
        ("skip", RUNNING, Refuse("still running")),
        ("skip", WAITING, Refuse("still waiting to run")),
        ("queue_one", RUNNING, Queue()),
        ("queue_one", WAITING, Refuse("one is waiting already")),
        ("queue_one", BOTH, Refuse("one is waiting already")),
        ("queue_all", BOTH, Queue()),
        ("queue_all", RunCounts(1, 99), Queue()),
        ("queue_all", RunCounts(1, 100), Refuse("100 are waiting already")),
        ("cancel_running", RUNNING, Replace()),
        ("cancel_running", WAITING, Replace()),
        ("allow", RunCounts(7, 7), Start()),
    ],
)
def test_a_tick_that_meets_unfinished_runs(overlap: Overlap, runs: RunCounts, action: Action) -> None:
    assert decide(overlap, runs) == action


@pytest.mark.parametrize(
    ("overlap", "made"),
    [("skip", 1), ("queue_one", 1), ("queue_all", 5), ("cancel_running", 200), ("allow", 200)],
)
def test_many_ticks_due_together_make_no_more_runs_than_the_policy_allows(overlap: Overlap, made: int) -> None:
    runs, started = FREE, 0
    for _ in range(200):
        action = decide(overlap, runs, most_queued=5)
        started += not isinstance(action, Refuse)
        runs = after(action, runs)
    assert started == made
    assert runs.running == 0
    assert runs.waiting == (1 if overlap == "cancel_running" else made)


def test_queue_one_lets_one_wait_behind_the_one_that_runs() -> None:
    runs = after(decide("queue_one", RUNNING), RUNNING)
    assert runs == RunCounts(running=1, waiting=1)
    assert after(decide("queue_one", runs), runs) == runs


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    assert checked("queue_one") == "queue_one"
    with pytest.raises(
        ConfigError, match="overlap='wait': it is one of skip, queue_one, queue_all, cancel_running, allow"
    ):
        checked("wait")
