from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from trueup.errors import ConfigError
from trueup.schedules.policy import SchedulePolicy

HOUR = timedelta(hours=1)
OTHER: dict[str, Any] = {
    "missed": "all",
    "catch_up": 2 * HOUR,
    "grace": timedelta(seconds=5),
    "overlap": "queue_all",
    "most_queued": 7,
    "jitter": timedelta(seconds=90),
    "pause_after": 3,
}


def test_what_differs_from_the_default_is_stored_and_read_back() -> None:
    policy = SchedulePolicy(**OTHER)
    stored = policy.to_json()
    assert stored == {**OTHER, "catch_up": "2h", "grace": "5s", "jitter": "1m30s"}
    assert SchedulePolicy.from_json(stored) == policy


def test_the_default_is_stored_as_nothing() -> None:
    assert SchedulePolicy().to_json() == {}
    assert SchedulePolicy.from_json({}) == SchedulePolicy()


@pytest.mark.parametrize("name", OTHER)
def test_each_part_is_stored_by_itself(name: str) -> None:
    policy = SchedulePolicy(**{name: OTHER[name]})
    assert list(policy.to_json()) == [name]
    assert SchedulePolicy.from_json(policy.to_json()) == policy


def test_people_write_durations_as_text() -> None:
    policy = SchedulePolicy.of(
        missed="all", catch_up="2h", grace="5s", overlap="skip", most_queued=3, jitter="1m", pause_after=None
    )
    assert (policy.catch_up, policy.grace, policy.jitter) == (2 * HOUR, timedelta(seconds=5), timedelta(minutes=1))


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ({"missed": "some"}, "missed"),
        ({"overlap": "wait"}, "overlap"),
        ({"jitter": -HOUR}, "jitter"),
        ({"grace": -HOUR}, "grace"),
        ({"catch_up": -HOUR}, "catch_up"),
        ({"most_queued": 0}, "most_queued"),
        ({"most_queued": True}, "most_queued"),
        ({"pause_after": 0}, "pause_after"),
        ({"pause_after": 1.5}, "pause_after"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_by_name(written: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SchedulePolicy(**written)


@pytest.mark.parametrize("stored", [{"mood": "good"}, {"grace": "soon"}, {"grace": 5}, {"overlap": "wait"}])
def test_what_this_release_does_not_know_is_not_guessed_at(stored: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SchedulePolicy.from_json(stored)
