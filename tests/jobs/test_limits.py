from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.durations import Rate
from trueup.errors import ConfigError
from trueup.jobs.limits import AHEAD, Controls, Limit, grant
from trueup.testing.clock import NOON

SECOND = timedelta(seconds=1)

rates = st.builds(
    lambda count, per, burst: Rate(count, per, min(burst, count)),
    count=st.integers(1, 200),
    per=st.timedeltas(timedelta(milliseconds=1), timedelta(hours=1)),
    burst=st.integers(1, 20),
)
claims = st.lists(st.tuples(st.timedeltas(timedelta(), timedelta(seconds=30)), st.integers(1, 50)), max_size=30)


def starts(rate: Rate, asked: list[tuple[timedelta, int]]) -> list[datetime]:
    """When jobs start in a lane that always has some, for claims of so many after such pauses."""
    started, next_start_at, now = [], None, NOON
    for pause, most in asked:
        now += pause
        granted = grant(rate, next_start_at, now, most)
        used = len(granted.slots)
        started += [now + granted.start_after(position) for position in range(used)]
        next_start_at = granted.next_start_at(used, rate) or next_start_at
    return started


@given(rates, claims)
def test_no_window_holds_more_starts_than_the_rate_and_its_burst_allow(
    rate: Rate, asked: list[tuple[timedelta, int]]
) -> None:
    moments = sorted(starts(rate, asked))
    most = rate.count + rate.burst - 1
    for first, beyond in zip(moments, moments[most:], strict=False):
        assert beyond - first >= rate.per


@given(rates.filter(lambda rate: rate.burst == 1), claims)
def test_without_a_burst_starts_are_spaced_evenly(rate: Rate, asked: list[tuple[timedelta, int]]) -> None:
    moments = starts(rate, asked)
    assert all(later - earlier >= rate.spacing for earlier, later in pairwise(moments))


def test_time_in_which_nothing_started_is_not_saved_up() -> None:
    rate = Rate.parse("10/s")
    granted = grant(rate, NOON, NOON + timedelta(hours=1), most=100)
    assert len(granted.slots) == 3, "what fits between now and AHEAD, 100 ms apart"
    assert granted.slots[0] == NOON + timedelta(hours=1)


def test_a_burst_saves_up_to_its_size() -> None:
    granted = grant(Rate(10, SECOND, burst=5), NOON, NOON + timedelta(hours=1), most=100)
    assert [granted.start_after(n) for n in range(5)] == [timedelta()] * 5
    assert granted.start_after(5) == timedelta(milliseconds=100)


def test_a_lane_that_never_started_anything_begins_at_once() -> None:
    assert grant(Rate.parse("1/h"), None, NOON, most=5).slots == (NOON,)


def test_no_slot_is_granted_further_ahead_than_allowed_and_the_wait_leads_there() -> None:
    rate, taken = Rate.parse("1/m"), NOON + timedelta(minutes=1)
    granted = grant(rate, taken, NOON, most=5)
    assert granted.slots == ()
    assert granted.wait == timedelta(minutes=1) - AHEAD
    assert grant(rate, taken, NOON + granted.wait, most=5).slots == (taken,)


def test_a_slot_of_a_clock_that_was_set_back_is_not_waited_for() -> None:
    rate = Rate.parse("10/s")
    taken = grant(rate, None, NOON, most=100)
    next_start_at = taken.next_start_at(len(taken.slots), rate)
    assert grant(rate, next_start_at, NOON, most=100).slots == ()
    granted = grant(rate, next_start_at, NOON - timedelta(hours=1), most=2)
    assert [granted.start_after(n) for n in range(2)] == [timedelta(), timedelta(milliseconds=100)]


def test_only_used_slots_count() -> None:
    rate = Rate.parse("10/s")
    granted = grant(rate, None, NOON, most=3)
    assert granted.next_start_at(0, rate) is None
    assert granted.next_start_at(1, rate) == NOON + timedelta(milliseconds=100)
    assert granted.next_start_at(2, rate) == NOON + timedelta(milliseconds=200)


def test_without_a_rate_everything_may_start_now() -> None:
    granted = grant(None, None, NOON, most=4)
    assert granted.slots == (NOON,) * 4
    assert granted.next_start_at(4, None) is None


@pytest.mark.parametrize("options", [{"total": 0}, {"per_key": -1}, {"total": True}, {"total": 1.5}, {}])
def test_a_limit_that_lets_nothing_through_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Limit"):
        Limit(**options)


def test_a_number_as_limit_is_the_total() -> None:
    assert Controls.parse("send", 3, None, None, ["to"]).limit == Limit(total=3)


def test_fair_by_must_name_an_argument() -> None:
    with pytest.raises(ConfigError, match=r"job 'send': fair_by='tenant' is not one of its arguments \(to, times\)"):
        Controls.parse("send", None, None, "tenant", ["to", "times"])


def test_a_limit_per_key_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="needs fair_by="):
        Controls.parse("send", Limit(per_key=1), None, None, ["to"])


def test_only_a_kind_with_controls_has_a_lane_of_its_own() -> None:
    assert Controls().lane("send", "mail") == "mail"
    for controls in (Controls(limit=Limit(1)), Controls(rate=Rate.parse("1/s")), Controls(fair_by="to")):
        assert controls.lane("send", "mail") == "@send"
