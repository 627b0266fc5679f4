"""What becomes of a message, by what the receiver answers and by what happens meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

import pytest

from apps.birthdays import people
from tests.apps.birthdays.desk import Desk
from tests.integrations.sink import Exchange, says
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

OPEN = Callable[..., Awaitable[Desk]]


async def test_two_past_events_are_processed_and_next_years_are_there(desk: Desk) -> None:
    for name in ("Ada", "Bob"):
        await desk.due(name, hours=2)
    assert (await desk.sweep()).changed == 2
    assert sorted(await desk.states()) == [(2026, "COMPLETED")] * 2 + [(2027, "PENDING")] * 2


async def test_what_is_completed_is_not_processed_again(desk: Desk, clock: ManualClock) -> None:
    await desk.due()
    await desk.sweep()
    (sent, _) = await desk.events()
    clock.advance(days=30)
    assert (await desk.sweep()).claimed == 0
    assert (await desk.events())[0] == sent
    assert (sent["executed_at"], sent["attempts"]) == (clock.now() - timedelta(days=30), 1)
    assert len(desk.receiver.received) == 1


async def test_what_is_to_come_is_left_alone_until_its_moment(desk: Desk, clock: ManualClock) -> None:
    await desk.due(seconds=-1)
    assert (await desk.sweep()).claimed == 0
    clock.advance(seconds=1)
    assert (await desk.sweep()).changed == 1


async def test_the_message_its_keys_and_its_headers_are_exact(open_desk: OPEN) -> None:
    desk = await open_desk(BIRTHDAYS_WEBHOOK_SECRET="whsec_c2VjcmV0")
    await desk.due()
    (event,) = await desk.events()
    await desk.sweep()
    (received,) = desk.receiver.received
    key = str(event["id"])
    assert desk.receiver.bodies == [
        {"message": "Hey, Ada L. it's your birthday", "idempotencyKey": key, "eventId": key}
    ]
    assert received.headers["idempotency-key"] == key
    assert received.headers["content-type"] == "application/json"
    assert received.headers["webhook-signature"].startswith("v1,")


NAMES = [
    "O'Neill",
    '"quoted"',
    "{first}",
    "{0} %s %(id)s",
    "Zoë 🎂",
    "👩‍👩‍👧",
    "<b>",
    "\\n",
    "山田",
    "א\u200fב",
    "$1; drop",
]


async def test_names_arrive_exactly(desk: Desk) -> None:
    for name in NAMES:
        await desk.due(name)
    await desk.sweep()
    assert sorted(desk.receiver.messages) == sorted(f"Hey, {name} L. it's your birthday" for name in NAMES)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_refusal_is_a_dead_letter_at_once_and_next_year_is_planned(desk: Desk, status: int) -> None:
    ada = await desk.due()
    desk.receiver.answer = lambda message: status
    await desk.sweep()
    await desk.worker.run_pending()
    assert await desk.states(ada) == [(2026, "DEAD"), (2027, "PENDING")]
    dead = (await desk.events())[0]
    assert dead["attempts"] == 1
    assert f"answered {status}" in dead["last_error"]
    assert len(desk.receiver.received) == 1


async def test_three_failed_attempts_are_a_dead_letter_while_others_work(desk: Desk, clock: ManualClock) -> None:
    ada = await desk.due()
    desk.receiver.answer = lambda message: 500 if "Ada" in message else 200
    for attempt in (1, 2):
        await desk.due("Bob")
        await desk.sweep()
        event = (await desk.events(ada))[0]
        assert (event["status"], event["attempts"]) == ("FAILED", attempt)
        assert event["next_attempt_at"] > clock.now()
        assert "answered 500" in event["last_error"]
        assert (await desk.sweep()).claimed == 0, "not before its time has come"
        clock.advance(hours=3)
    await desk.due("Bob")
    await desk.sweep()
    await desk.worker.run_pending()
    assert await desk.states(ada) == [(2026, "DEAD"), (2027, "PENDING")]
    dead = (await desk.events(ada))[0]
    assert (dead["attempts"], dead["next_attempt_at"]) == (3, None)
    assert len(desk.receiver.keys("Ada")) == 3
    assert len(set(desk.receiver.keys("Ada"))) == 1


async def test_three_failed_attempts_are_a_dead_letter_when_there_is_no_other(desk: Desk, clock: ManualClock) -> None:
    ada = await desk.due()
    desk.receiver.answer = lambda message: 500
    await desk.sweep()
    clock.advance(hours=2)
    await desk.sweep()
    clock.advance(hours=2)
    assert (await desk.sweep()).claimed == 0, "it is tried over hours"
    clock.advance(hours=1)
    await desk.sweep()
    await desk.worker.run_pending()
    assert await desk.states(ada) == [(2026, "DEAD"), (2027, "PENDING")]


@pytest.mark.matrix
@pytest.mark.parametrize("status", [302, 307, 401, 403, 404, 405, 407, 410, 421, 511])
@pytest.mark.parametrize("waiting", [1, 20])
async def test_a_receiver_that_would_refuse_any_message_buries_none(
    desk: Desk, clock: ManualClock, status: int, waiting: int
) -> None:
    """A gateway in front of a receiver that is away, or leads to its login, or credentials that have run out: for a day and a half."""
    for number in range(waiting):
        await desk.due(f"user {number}", minutes=number)
    desk.receiver.answer = lambda message: status
    for _ in range(12):
        await desk.sweep()
        clock.advance(hours=3)
    assert {each for _, each in await desk.states()} <= {"PENDING", "FAILED"}
    (tried, *_) = [event for event in await desk.events() if event["status"] == "FAILED"]
    assert re.fullmatch(rf"http://127.0.0.1:\d+ answered {status}(, and redirects .*)?", tried["last_error"]), (
        "people can see why"
    )
    desk.receiver.answer = lambda message: 200
    for _ in range(4):
        await desk.sweep()
        clock.advance(hours=3)
    assert sorted(await desk.states()) == [(2026, "COMPLETED")] * waiting + [(2027, "PENDING")] * waiting


async def test_a_receiver_that_refuses_message_after_message_buries_no_backlog(desk: Desk, clock: ManualClock) -> None:
    """Whatever it says: nobody can tell beforehand what a broken receiver answers."""
    for number in range(60):
        await desk.due(f"user {number}", minutes=number)
    desk.receiver.answer = lambda message: 400
    for _ in range(30):
        await desk.sweep()
        clock.advance(minutes=1)
    dead = [status for _, status in await desk.states()].count("DEAD")
    assert 5 <= dead < 25, "the first, and one for each time it was asked whether it is well again"
    desk.receiver.answer = lambda message: 200
    for _ in range(20):
        await desk.sweep()
        clock.advance(minutes=1)
    states = [status for year, status in await desk.states() if year == 2026]
    assert (states.count("DEAD"), states.count("COMPLETED")) == (dead, 60 - dead)


async def test_retry_after_is_heeded_for_every_message(desk: Desk, clock: ManualClock) -> None:
    for number in range(40):
        await desk.due(f"user {number}", minutes=number)
    desk.receiver.answer = lambda message: says(429, Retry_After="300")
    await desk.sweep()
    asked = len(desk.receiver.received)
    assert asked <= desk.service.config.concurrency, "those that were on their way"
    clock.advance(minutes=4)
    await desk.sweep()
    assert len(desk.receiver.received) == asked
    desk.receiver.answer = lambda message: 200
    for _ in range(4):
        clock.advance(minutes=2)
        await desk.sweep()
    assert [status for year, status in await desk.states() if year == 2026] == ["COMPLETED"] * 40
    assert {event["attempts"] for event in await desk.events() if event["status"] == "COMPLETED"} == {1}


async def test_executed_is_when_it_was_sent_and_not_when_it_was_begun(desk: Desk, clock: ManualClock) -> None:
    await desk.due()

    async def slowly(message: str) -> int:
        clock.advance(seconds=5)
        return 200

    desk.receiver.answer = slowly
    await desk.sweep()
    assert (await desk.events())[0]["executed_at"] == clock.now()


async def test_next_years_message_is_sent_also_after_a_dead_letter(desk: Desk, clock: ManualClock) -> None:
    ada = await desk.due()
    desk.receiver.answer = lambda message: 400
    await desk.sweep()
    await desk.worker.run_pending()
    desk.receiver.answer = lambda message: 200
    clock.advance(days=366)
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "DEAD"), (2027, "COMPLETED"), (2028, "PENDING")]


async def test_a_dead_letter_tried_again_has_all_attempts_and_makes_no_second_next_year(desk: Desk) -> None:
    ada = await desk.due()
    desk.receiver.answer = lambda message: 400
    await desk.sweep()
    await desk.worker.run_pending()
    assert await desk.requeue() == 1
    assert await desk.requeue() == 0
    desk.receiver.answer = lambda message: 200
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "COMPLETED"), (2027, "PENDING")]
    sent = (await desk.events(ada))[0]
    assert (sent["attempts"], sent["last_error"]) == (1, None)
    assert len(set(desk.receiver.keys("Ada"))) == 1


async def test_too_many_requests_is_waited_out_without_spending_an_attempt(desk: Desk, clock: ManualClock) -> None:
    ada = await desk.due()
    desk.receiver.answer = lambda message: says(429, Retry_After="120")
    for _ in range(5):
        await desk.sweep()
        assert (await desk.events(ada))[0]["status"] == "PENDING"
        clock.advance(seconds=119)
        assert (await desk.sweep()).claimed == 0
        clock.advance(seconds=1)
    desk.receiver.answer = lambda message: 200
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "COMPLETED"), (2027, "PENDING")]
    assert (await desk.events(ada))[0]["attempts"] == 1
    assert len(desk.receiver.received) == 6


@pytest.mark.parametrize("status", [429, 503])
async def test_one_message_that_is_put_off_for_ever_does_not_keep_the_others_waiting(
    desk: Desk, clock: ManualClock, status: int
) -> None:
    """A receiver may have a limit for each person, or a fault that only one name brings out."""
    ada = await desk.due("Ada", hours=5)
    others = [await desk.due(f"Bob {number}", hours=4) for number in range(50)]
    desk.receiver.answer = lambda message: says(status, Retry_After="3600") if "Ada" in message else 200
    for _ in range(8):
        await desk.sweep()
        clock.advance(hours=1)
    assert [await desk.states(each) for each in others] == [[(2026, "COMPLETED"), (2027, "PENDING")]] * len(others)
    for _ in range(8):
        await desk.sweep()
        clock.advance(hours=1)
    await desk.worker.run_pending()
    assert await desk.states(ada) == [(2026, "DEAD"), (2027, "PENDING")], "and it ends, where people see it"
    (dead,) = [event for event in await desk.events(ada) if event["status"] == "DEAD"]
    assert (dead["attempts"], f"answered {status}" in dead["last_error"]) == (3, True)


async def test_a_receiver_that_still_has_the_message_in_hand_is_asked_again(desk: Desk, clock: ManualClock) -> None:
    """It answers 409 to a key that it has not finished with: what it was sent before may yet become a failure."""
    ada = await desk.due()
    desk.receiver.answer = lambda message: 409
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "FAILED")]
    desk.receiver.answer = lambda message: 200
    clock.advance(hours=1)
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "COMPLETED"), (2027, "PENDING")]


async def test_a_receiver_that_hangs_is_given_up_in_time(open_desk: OPEN) -> None:
    desk = await open_desk(BIRTHDAYS_WEBHOOK_TIMEOUT="100ms")
    await desk.due()

    async def hang(exchange: Exchange) -> None:
        await exchange.until_hung_up()

    desk.receiver.answer = lambda message: hang
    await asyncio.wait_for(desk.sweep(), 5)
    (event,) = await desk.events()
    assert event["status"] == "FAILED"
    assert "not answered within 100ms" in event["last_error"]


async def test_a_receiver_that_takes_it_too_late_gets_the_same_again_under_the_same_key(
    open_desk: OPEN, clock: ManualClock
) -> None:
    desk = await open_desk(BIRTHDAYS_WEBHOOK_TIMEOUT="100ms")
    ada = await desk.due()

    async def too_late(exchange: Exchange) -> None:
        await exchange.until_hung_up()
        with suppress(ConnectionError):
            await says(200)(exchange)

    desk.receiver.answer = lambda message: too_late
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "FAILED")]
    desk.receiver.answer = lambda message: 200
    clock.advance(hours=1)
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "COMPLETED"), (2027, "PENDING")]
    first, again = desk.receiver.received
    assert (first.headers["idempotency-key"], first.body) == (again.headers["idempotency-key"], again.body)


async def test_without_a_setting_the_timeout_is_ten_seconds(desk: Desk) -> None:
    assert desk.service.config.webhook_timeout == timedelta(seconds=10)


async def test_a_receiver_that_is_down_for_an_hour_buries_nothing(desk: Desk, clock: ManualClock) -> None:
    for number in range(50):
        await desk.due(f"user {number}", minutes=number)
    desk.receiver.answer = lambda message: 503
    for _ in range(60):
        await desk.sweep()
        clock.advance(minutes=1)
    assert {status for _, status in await desk.states()} <= {"PENDING", "FAILED"}
    assert len(desk.receiver.received) < 100, "it was left alone most of the time"
    desk.receiver.answer = lambda message: 200
    for _ in range(15):
        await desk.sweep()
        clock.advance(minutes=1)
    assert sorted(await desk.states()) == [(2026, "COMPLETED")] * 50 + [(2027, "PENDING")] * 50


async def test_a_user_deleted_while_the_message_is_on_its_way_leaves_nothing_behind(desk: Desk) -> None:
    ada, bob = await desk.due(), await desk.due("Bob")

    async def meanwhile(message: str) -> int:
        if "Ada" in message:
            await desk.delete(ada)
        return 200

    desk.receiver.answer = meanwhile
    counts = await desk.sweep()
    assert (counts.conflict, counts.changed, counts.retry) == (1, 1, 0)
    assert {event["user_id"] for event in await desk.events()} == {bob}
    assert (await desk.sweep()).claimed == 0


async def test_a_user_deleted_between_claim_and_sending_is_sent_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await desk.due()
    get = people.get

    async def deleted_first(tx: Any, user_id: int) -> Any:
        await desk.delete(ada)
        return await get(tx, user_id)

    monkeypatch.setattr(people, "get", deleted_first)
    await desk.sweep()
    assert desk.receiver.received == []
    assert await desk.events() == []


@pytest.mark.parametrize("change", [{"timezone": "Asia/Tokyo"}, {"date_of_birth": date(1990, 6, 1)}])
async def test_a_change_during_the_delivery_sends_again_under_the_same_key(
    desk: Desk, clock: ManualClock, change: dict[str, Any]
) -> None:
    ada = await desk.due()
    changes = [change]

    async def meanwhile(message: str) -> int:
        if changes:
            await desk.change(ada, **changes.pop())
        return 200

    desk.receiver.answer = meanwhile
    assert (await desk.sweep()).conflict == 1
    assert await desk.states(ada) == [(2026, "PENDING")]
    assert (await desk.sweep()).claimed == 0, "an outcome that was not written is a failed attempt, so it backs off"
    clock.advance(hours=1)
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "COMPLETED"), (2027, "PENDING")]
    assert len(desk.receiver.received) == 2
    assert len(set(desk.receiver.keys("Ada"))) == 1
    assert (await desk.moments(ada))[0][1] in ("2027-01-01 00:00", "2027-06-01 09:00")


async def test_a_change_of_name_on_the_way_has_nothing_sent_again(desk: Desk) -> None:
    ada = await desk.due()

    async def meanwhile(message: str) -> int:
        await desk.change(ada, first_name="Augusta")
        return 200

    desk.receiver.answer = meanwhile
    assert (await desk.sweep()).changed == 1
    assert len(desk.receiver.received) == 1


async def test_a_zone_that_is_no_more_is_found_before_anything_is_sent(desk: Desk) -> None:
    ada = await desk.due()
    await desk.do("update users set timezone = 'Mars/Olympus'")
    await desk.sweep()
    assert desk.receiver.received == []
    (event,) = await desk.events(ada)
    assert event["status"] == "DEAD"
    assert "Mars/Olympus" in event["last_error"]
    await desk.worker.run_pending()
    assert await desk.states(ada) == [(2026, "DEAD")], "without a zone there is no moment for next year's"
    await desk.change(ada, timezone="Europe/London")
    assert await desk.states(ada) == [(2026, "DEAD"), (2027, "PENDING")]


async def test_if_next_years_message_cannot_be_stored_this_one_is_not_completed(desk: Desk, clock: ManualClock) -> None:
    """They are stored together or not at all; it is sent again, under the same key."""
    await desk.due()
    await desk.do("alter table events add constraint not_yet check (target_year < 2027) not valid")
    await desk.sweep()
    assert await desk.states() == [(2026, "FAILED")]
    await desk.do("alter table events drop constraint not_yet")
    clock.advance(hours=1)
    await desk.sweep()
    assert await desk.states() == [(2026, "COMPLETED"), (2027, "PENDING")]
    assert len(set(desk.receiver.keys("Ada"))) == 1


async def test_processing_that_nobody_holds_is_picked_up_after_a_lease(desk: Desk, clock: ManualClock) -> None:
    """Another process might have put it there: what is still there after `lease_for` belongs to no process."""
    await desk.due()
    await desk.do("update events set status = 'PROCESSING'")
    for seconds in (0, desk.service.config.lease_for.total_seconds() - 1):
        clock.advance(seconds=seconds)
        assert (await desk.sweep()).claimed == 0
        assert await desk.states() == [(2026, "PROCESSING")]
    assert desk.receiver.received == []
    clock.advance(seconds=1)
    assert (await desk.sweep()).changed == 1
    assert await desk.states() == [(2026, "COMPLETED"), (2027, "PENDING")]


async def test_each_claim_counts_the_version_up(desk: Desk, clock: ManualClock) -> None:
    """By which a change knows whether a message may have been sent."""
    await desk.due()
    desk.receiver.answer = lambda message: says(429, Retry_After="1")
    await desk.sweep()
    (event,) = await desk.events()
    assert event["version"] > 0


async def test_years_go_by_with_one_message_each(desk: Desk, clock: ManualClock) -> None:
    ada = await desk.due()
    for _ in range(5):
        await desk.sweep()
        clock.advance(days=365.25)
    assert [year for year, status in await desk.states(ada) if status == "COMPLETED"] == [2026, 2027, 2028, 2029, 2030]
    assert len(set(desk.receiver.keys("Ada"))) == len(desk.receiver.received) == 5
