"""What is in hand, how much more may be claimed, and what runs next: plain questions to plain data."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import pytest

from trueup.durations import Rate
from trueup.jobs.job import ClaimedJob
from trueup.testing.clock import NOON, ManualClock
from trueup.work.jobs.hand import CRASHES_TO_ISOLATE, MAX_WAITING_BYTES, Hand, RunningJob

HOLDER = uuid4()


def job(
    number: int, queue: str = "default", *, lane: str | None = None, crashes: int = 0, term: int = 1, rank: int = 0
) -> ClaimedJob:
    at = NOON + timedelta(seconds=rank)
    return ClaimedJob(HOLDER, number, "send", queue, lane or queue, "", "{}", 1, 3, crashes, term, NOON, NOON, NOON, at)


def start(hand: Hand, claimed: ClaimedJob) -> RunningJob:
    run = RunningJob(claimed, cast("asyncio.Task[None]", None), 0.0)
    hand.started(run)
    return run


def taken(hand: Hand) -> list[int]:
    return [claimed.id for claimed in iter(hand.take, None)]


def test_jobs_of_a_queue_run_in_the_order_they_came() -> None:
    hand = Hand(10, {"default": None})
    hand.put([job(1), job(2), job(3)])
    assert taken(hand) == [1, 2, 3]
    assert hand.waiting == 0


def test_a_job_of_a_better_rank_that_is_claimed_later_runs_before_those_that_wait() -> None:
    hand = Hand(10, {"default": None})
    hand.put([job(1, rank=10), job(2, rank=20), job(3, rank=30)])
    hand.put([job(4, rank=15), job(5, rank=20), job(6, rank=40)])
    assert taken(hand) == [1, 4, 2, 5, 3, 6]
    assert hand.waiting == 0


def test_a_better_rank_does_not_go_before_a_job_that_its_limits_count_as_started() -> None:
    hand = Hand(10, {"default": None})
    hand.put([job(1, rank=10)])
    hand.put([job(2, lane="@send", rank=20)], first=True)
    hand.put([job(3, rank=5)])
    assert taken(hand) == [2, 3, 1]


def test_a_closed_hand_starts_nothing_and_gives_back_what_still_comes() -> None:
    hand = Hand(10, {"default": None})
    hand.put([job(1)])
    hand.closed = True
    hand.put([job(2), job(3, crashes=CRASHES_TO_ISOLATE)])
    assert taken(hand) == []
    assert [claimed.id for claimed in hand.take_all()] == [1, 2, 3]


def test_queues_take_turns() -> None:
    hand = Hand(10, {"default": None, "mail": None})
    hand.put([job(1), job(2), job(11, "mail"), job(12, "mail")])
    assert taken(hand) == [1, 11, 2, 12]


def test_a_queue_at_its_own_concurrency_waits_while_others_run() -> None:
    hand = Hand(10, {"default": None, "mail": 1})
    hand.put([job(11, "mail"), job(12, "mail"), job(1)])
    first = hand.take()
    assert first is not None
    run = start(hand, first)
    assert taken(hand) == [1]
    hand.ended(run)
    assert taken(hand) == [12]


def test_room_counts_what_runs_and_what_waits() -> None:
    hand = Hand(10, {"default": None})
    assert hand.room(0, ["default"]) == {"default": 10}
    assert hand.room(5, ["default"]) == {"default": 15}
    hand.put([job(1), job(2)])
    start(hand, job(3))
    assert hand.room(0, ["default"]) == {"default": 7}


def test_there_is_no_room_while_too_much_waits_to_be_written() -> None:
    hand = Hand(10, {"default": None})
    assert hand.room(-10, ["default"]) == {}
    assert hand.lane_room("default", -10) == 0


@pytest.mark.parametrize("concurrency", range(1, 12))
@pytest.mark.parametrize("queues", range(1, 12))
def test_room_is_shared_by_the_queues_that_wait_and_never_promised_twice(concurrency: int, queues: int) -> None:
    hand = Hand(concurrency, {f"queue {n}": None for n in range(20)})
    waiting = [f"queue {n}" for n in range(queues)]
    room = hand.room(0, waiting)
    assert sum(room.values()) == concurrency
    assert list(room) == waiting[:concurrency], "with too little room, the first ones get it"
    assert max(room.values()) - min(room.values()) <= 1


def test_a_queue_s_own_concurrency_bounds_what_is_claimed_for_it() -> None:
    assert Hand(10, {"mail": 2}).room(0, ["mail"]) == {"mail": 2}
    assert Hand(10, {"mail": 2}).room(100, ["mail"]) == {"mail": 4}


def test_a_queue_at_its_own_concurrency_leaves_the_room_to_the_others() -> None:
    hand = Hand(10, {"mail": 1, "default": None})
    start(hand, job(1, "mail"))
    assert hand.room(0, ["mail", "default"]) == {"default": 9}


def test_large_arguments_that_wait_leave_no_room() -> None:
    hand = Hand(10, {"default": None})
    large = dataclasses.replace(job(1), args="x" * MAX_WAITING_BYTES)
    hand.put([large])
    assert hand.room(100, ["default"]) == {}
    assert hand.take() is large
    assert hand.room(0, ["default"]) == {"default": 10}


@pytest.mark.parametrize("first", [True, False])
def test_jobs_with_limits_are_never_given_up(first: bool) -> None:
    """Their limits count them as started, wherever they wait."""
    hand = Hand(1, {"default": None})
    start(hand, job(31))
    hand.put([job(number) for number in (1, 2)])
    hand.put([job(21, lane="@send")], first=first)
    assert [claimed.id for claimed in hand.surplus(0)] == [2, 1]
    assert taken(hand) == [21]


def test_what_exceeds_the_need_is_given_up_last_first_and_jobs_with_limits_are_kept() -> None:
    hand = Hand(2, {"default": None, "mail": None})
    start(hand, job(31))
    start(hand, job(32))
    hand.put([*(job(number) for number in range(1, 6)), *(job(number, "mail") for number in range(11, 13))])
    hand.put([job(21, lane="@send")], first=True)
    assert [claimed.id for claimed in hand.surplus(3)] == [5, 4, 3, 2]
    assert hand.waiting == 4
    assert sorted(taken(hand)) == [1, 11, 12, 21]
    assert hand.surplus(0) == []


@pytest.mark.parametrize(
    ("running", "cap", "limited", "given"),
    [
        (0, None, 0, []),
        (1, None, 0, [5]),
        (5, None, 0, [5, 4, 3, 2, 1]),
        (0, None, 2, [5, 4]),
        (0, 2, 0, [5, 4, 3]),
        (1, 2, 0, [5, 4, 3, 2]),
        (2, 2, 0, [5, 4, 3, 2, 1]),
    ],
)
def test_what_free_places_are_about_to_take_is_not_given_up(
    running: int, cap: int | None, limited: int, given: list[int]
) -> None:
    """The claimer looks again before runners have taken what it claimed, and no pace is known yet."""
    hand = Hand(5, {"default": cap})
    for number in range(running):
        start(hand, job(100 + number))
    hand.put([job(number) for number in range(1, 6)])
    hand.put([job(200 + number, lane="@send") for number in range(limited)], first=True)
    assert [claimed.id for claimed in hand.surplus(0)] == given


@pytest.mark.parametrize("ahead", [0, 3, 100])
@pytest.mark.parametrize("running", [0, 2, 4])
def test_what_is_given_up_is_never_asked_for_again(ahead: int, running: int) -> None:
    hand = Hand(4, {"default": None, "mail": 3})
    for number in range(running):
        start(hand, job(100 + number, "mail" if number == 0 else "default"))
    hand.put([*(job(number) for number in range(1, 11)), *(job(number, "mail") for number in range(11, 15))])
    if hand.surplus(ahead):
        assert hand.room(ahead, ["default", "mail"]) == {}


def test_limited_jobs_find_room_although_plain_ones_wait_in_hand() -> None:
    hand = Hand(10, {"default": None})
    hand.put([job(number) for number in range(500)])
    assert hand.lane_room("default", 0) == 10
    hand.put([job(1001, lane="@send")], first=True)
    assert hand.lane_room("default", 0) == 9
    assert hand.take() == job(1001, lane="@send"), "it is counted as started by its limits, so it starts next"


def test_limited_jobs_are_not_hoarded_behind_long_running_ones() -> None:
    hand = Hand(2, {"default": None})
    start(hand, job(1))
    assert hand.lane_room("default", 0) == 1
    start(hand, job(2))
    assert hand.lane_room("default", 0) == 0


def test_jobs_of_lanes_that_wait_behind_long_ones_go_back() -> None:
    hand = Hand(2, {"default": None})
    hand.put([job(1, lane="@send"), job(2, lane="@send"), job(3)])
    assert hand.stranded() == [], "there are places for both"
    start(hand, job(4))
    assert [stranded.id for stranded in hand.stranded()] == [2]
    assert taken(hand) == [1, 3]
    assert hand.waiting == 0


@pytest.mark.parametrize("first", [[1, 2, 3], [3, 1, 2]])
def test_jobs_that_go_before_the_others_keep_their_own_order(first: list[int]) -> None:
    hand = Hand(10, {"default": None})
    hand.put([job(11), job(12)])
    hand.put([job(number, lane="@send") for number in first], first=True)
    assert taken(hand) == [*first, 11, 12]


def test_a_job_that_may_start_later_is_in_hand_until_its_moment() -> None:
    clock = ManualClock()
    hand = Hand(10, {"default": None}, elapsed=clock.elapsed)
    later = job(1, lane="@send")
    hand.expect(later, 5.0, Rate.parse("1/s"))
    assert hand.waiting == 1
    assert hand.take() is None
    clock.advance(seconds=5)
    assert hand.take() is later
    assert hand.waiting == 0


def test_a_job_that_was_given_back_does_not_start() -> None:
    hand = Hand(10, {"default": None})
    later = job(1, lane="@send")
    hand.expect(later, 0.0, Rate.parse("1/s"))
    assert hand.take_all() == [later]
    assert hand.take() is None
    assert hand.waiting == 0


def test_jobs_that_were_in_several_crashes_run_one_at_a_time() -> None:
    hand = Hand(10, {"default": None})
    hand.put([job(1, crashes=CRASHES_TO_ISOLATE), job(2, crashes=CRASHES_TO_ISOLATE), job(3)])
    suspect = hand.take()
    assert suspect is not None
    assert suspect.id == 1
    run = start(hand, suspect)
    assert taken(hand) == [3]
    hand.ended(run)
    assert taken(hand) == [2]


def test_the_same_job_claimed_anew_is_another_run() -> None:
    hand = Hand(10, {"default": None})
    deaf, fresh = start(hand, job(1, term=1)), start(hand, job(1, term=2))
    hand.ended(deaf)
    assert list(hand.running.values()) == [fresh]
    assert not hand.idle.is_set()


@pytest.mark.parametrize("kept", [{}, {"crashes": CRASHES_TO_ISOLATE}, {"lane": "@send"}])
def test_a_job_can_be_withdrawn_before_it_starts(kept: dict[str, Any]) -> None:
    hand = Hand(10, {"default": None})
    wanted = job(1, **kept)
    hand.put([wanted, job(2)])
    assert hand.withdraw(1, term=9) is None, "another term is another claim"
    assert hand.withdraw(1, term=1) is wanted
    assert taken(hand) == [2]
    assert hand.waiting == 0
