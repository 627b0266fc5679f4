from __future__ import annotations

import math

from trueup.work.jobs.hints import Rests

JITTER = 1.11  # times as long as asked for, at most


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rests_double_up_to_the_longest() -> None:
    seconds = Seconds()
    rests = Rests(1.0, seconds)
    pauses = []
    for _ in range(6):
        rests.rest("lane", 0.1)
        pauses.append(rests.next_in())
    for found, wanted in zip(pauses, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0), strict=True):
        assert wanted / JITTER < found < wanted * JITTER


def test_a_rest_ends_once_and_its_backoff_ends_with_it() -> None:
    seconds = Seconds()
    rests = Rests(1.0, seconds)
    rests.rest("lane", 0.1)
    assert rests.over() == []
    assert rests.backing_off("lane")
    seconds.now += 0.1 * JITTER
    assert rests.over() == ["lane"]
    assert rests.over() == []
    assert not rests.backing_off("lane")
    assert rests.next_in() == math.inf
    rests.rest("lane", 0.1)
    assert rests.next_in() > 0.1 * JITTER


def test_a_lane_that_was_claimed_begins_anew() -> None:
    rests = Rests(1.0, Seconds())
    rests.rest("lane", 0.1)
    rests.rest("lane", 0.1)
    rests.end("lane")
    assert not rests.backing_off("lane")
    rests.rest("lane", 0.1)
    assert rests.next_in() < 0.1 * JITTER


def test_a_wait_is_exact_and_no_reason_to_back_off() -> None:
    seconds = Seconds()
    rests = Rests(1.0, seconds)
    rests.rest("lane", 0.1)
    rests.wait("lane", 0.25)
    assert rests.next_in() == 0.25
    assert not rests.backing_off("lane")
