"""What is logged, counted and told: the exact texts and fields that alerts are made of."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client import REGISTRY

from apps.birthdays import watch
from apps.birthdays.service import RECONCILER
from tests.apps.birthdays.desk import Desk
from tests.support.watching import until
from trueup.observe.lines import facts_of
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("birthdays"), "propagate", True)
    caplog.set_level(logging.INFO, "birthdays")
    return caplog


def lines(told: pytest.LogCaptureFixture, message: str) -> list[tuple[str, dict[str, Any]]]:
    """Level and facts of each line with this text."""
    found = [record for record in told.records if record.name == "birthdays" and record.getMessage() == message]
    return [(record.levelname, facts_of(record)) for record in found]


def metric(name: str) -> float:
    return REGISTRY.get_sample_value(f"birthdays_{name}") or 0.0


async def test_a_message_more_than_an_hour_late_is_told_of(desk: Desk, told: pytest.LogCaptureFixture) -> None:
    ada = await desk.due(hours=2, minutes=30)
    await desk.due("Bob", minutes=60)
    event = (await desk.events(ada))[0]
    await desk.sweep()
    assert lines(told, "Late event execution (recovery)") == [
        (
            "WARNING",
            {
                "event_id": str(event["id"]),
                "user_id": ada,
                "target_time": "2026-06-01T09:30:00+00:00",
                "actual_time": "2026-06-01T12:00:00+00:00",
                "lateness_minutes": 150,
                "lateness_hours": 2.5,
                "reason": "no process ran when it was due, or the receiver did not take it",
            },
        )
    ]


async def test_a_late_message_is_told_of_when_it_is_sent_and_not_each_time_it_fails(
    desk: Desk, clock: ManualClock, told: pytest.LogCaptureFixture
) -> None:
    await desk.due(hours=2)
    desk.receiver.answer = lambda message: 500
    await desk.sweep()
    assert lines(told, "Late event execution (recovery)") == []


async def test_a_dead_letter_is_told_of(desk: Desk, told: pytest.LogCaptureFixture) -> None:
    await desk.due()
    desk.receiver.answer = lambda message: 422
    await desk.sweep()
    (event,) = await desk.events()
    assert lines(told, "Event moved to DLQ") == [
        ("ERROR", {"event_id": str(event["id"]), "attempts": 1, "last_error": event["last_error"]})
    ]


async def test_a_run_is_told_of_with_what_it_did(desk: Desk, told: pytest.LogCaptureFixture) -> None:
    await desk.due("Ada", minutes=4)
    await desk.due("Bob", minutes=6)
    await desk.due("dead")
    await desk.due("fails")
    desk.receiver.answer = lambda message: 400 if "dead" in message else 500 if "fails" in message else 200
    await desk.sweep()
    ((level, facts),) = lines(told, "Birthday messages sent")
    assert level == "INFO"
    assert (facts["processed"], facts["failed"], facts["late"]) == (2, 2, 1)
    assert facts["duration_ms"] > 0
    assert facts["events_per_second"] > 0
    assert set(facts) == {"processed", "failed", "late", "duration_ms", "events_per_second"}


async def test_the_next_run_counts_anew_and_one_that_finds_nothing_is_silent(
    desk: Desk, told: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await desk.due()
        await desk.sweep()
    await desk.sweep()
    assert [facts["processed"] for _, facts in lines(told, "Birthday messages sent")] == [1, 1]


async def test_metrics_count_what_was_done(desk: Desk) -> None:
    names = ("processed_total", "failed_total", "late_total")
    before = [metric(name) for name in names]
    await desk.due("Ada", minutes=4)
    await desk.due("Bob", minutes=6)
    await desk.due("dead")
    desk.receiver.answer = lambda message: 400 if "dead" in message else 200
    await desk.sweep()
    assert [metric(name) - was for name, was in zip(names, before, strict=True)] == [2, 1, 1]
    assert metric("average_lateness_seconds") == 5 * 60
    assert 0 < metric("run_duration_seconds") < 60


async def test_more_than_ten_late_messages_are_recovery_mode_and_told_of_once(
    desk: Desk, told: pytest.LogCaptureFixture
) -> None:
    for number in range(11):
        await desk.due(f"user {number}", hours=24 - number)
    for _ in range(3):
        await desk.service.watch.look_for_late()
    assert lines(told, "Recovery mode detected") == [("ERROR", {"late_events": 11, "oldest_event_age": "24.0h"})]
    assert metric("recovery_mode") == 1
    await desk.sweep()
    await desk.service.watch.look_for_late()
    assert metric("recovery_mode") == 0


async def test_ten_late_messages_and_any_number_within_the_grace_are_not(
    desk: Desk, told: pytest.LogCaptureFixture
) -> None:
    for number in range(10):
        await desk.due(f"late {number}", hours=1)
        await desk.due(f"soon {number}", minutes=4)
    await desk.service.watch.look_for_late()
    assert lines(told, "Recovery mode detected") == []
    assert metric("recovery_mode") == 0


async def test_nobody_sweeping_for_five_minutes_is_told_of(
    desk: Desk, clock: ManualClock, told: pytest.LogCaptureFixture
) -> None:
    await desk.sweep()
    clock.advance(minutes=5)
    await desk.service.watch.look_for_silence()
    assert lines(told, "Scheduler appears to be down") == []
    clock.advance(minutes=1)
    await desk.service.watch.look_for_silence()
    ((level, facts),) = lines(told, "Scheduler appears to be down")
    assert level == "CRITICAL"
    assert facts["minutes_since_last_run"] == 6.0
    assert f"{facts['last_run']:%Y-%m-%d %H:%M}" == "2026-06-01 12:00"


async def test_a_run_that_takes_longer_than_that_is_no_silence(desk: Desk, clock: ManualClock) -> None:
    await desk.sweep()
    await desk.due()
    found: list[watch.Silence] = []

    async def slow(message: str) -> int:
        await desk.do(  # as its keeper would renew it
            "update trueup.rows set due_at = %s", [clock.now().replace(hour=13)]
        )
        clock.advance(minutes=20)
        found.append(await desk.service.watch.silence())
        return 200

    desk.receiver.answer = slow
    await desk.sweep()
    assert [each.too_long for each in found] == [False]


async def test_a_rest_because_the_receiver_is_down_is_no_silence(desk: Desk, clock: ManualClock) -> None:
    for number in range(6):
        await desk.due(f"user {number}")
    desk.receiver.answer = lambda message: 503
    for _ in range(30):
        await desk.sweep()
        assert not (await desk.service.watch.silence()).too_long
        clock.advance(minutes=1)
    assert (await desk.app.reconcilers.show(RECONCILER))["state"] == "resting"
    clock.advance(minutes=20)  # and now nobody is there to end the rest
    assert (await desk.service.watch.silence()).too_long


async def test_a_look_that_fails_is_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY", 0.001)
    looks: list[int] = []

    async def look() -> None:
        looks.append(1)
        raise OSError("the database is away")

    task = asyncio.create_task(watch.keep_looking(look))
    await until(lambda: len(looks) >= 3)
    task.cancel()
    assert lines(told, "Look failed")[0] == ("WARNING", {"error": "OSError: the database is away"})
