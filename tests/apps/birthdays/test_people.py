"""Users who are created, move, are corrected and deleted: what becomes of their messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from psycopg.errors import CheckViolation

from apps.birthdays import people, planning
from apps.birthdays.config import Config
from apps.birthdays.planning import Planned
from tests.apps.birthdays.desk import Desk
from tests.support.interleave import Side, interleave
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

ENVIRONMENT = {"BIRTHDAYS_WEBHOOK_URL": "http://localhost/hook"}
OPEN = Callable[..., Awaitable[Desk]]


def at(clock: ManualClock, text: str) -> None:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    clock.advance(seconds=(moment - clock.now()).total_seconds())


async def test_a_user_is_created_with_the_first_message_to_come(desk: Desk) -> None:
    ada = await desk.user(born=date(1990, 6, 2), timezone="America/New_York")
    assert await desk.moments(ada) == [(2026, "2026-06-02 13:00")]


async def test_created_on_the_birthday_after_nine_it_is_next_years(desk: Desk) -> None:
    assert await desk.moments(await desk.user(born=date(1990, 6, 1))) == [(2027, "2027-06-01 09:00")]  # it is noon
    east = await desk.user(born=date(1990, 6, 1), timezone="America/New_York")  # where it is eight
    assert await desk.moments(east) == [(2026, "2026-06-01 13:00")]


@pytest.mark.parametrize(
    ("moved", "sent_before", "waits"),
    [
        ("2026-05-31 12:00", 0, (2026, "2026-06-01 08:00")),
        ("2026-06-01 07:59", 0, (2026, "2026-06-01 08:00")),
        ("2026-06-01 10:00", 0, (2026, "2026-06-01 08:00")),  # it is past nine there: at once
        ("2026-06-01 13:01", 1, (2027, "2027-06-01 08:00")),
        ("2026-12-01 12:00", 1, (2027, "2027-06-01 08:00")),
    ],
)
async def test_from_new_york_to_london(
    desk: Desk, clock: ManualClock, moved: str, sent_before: int, waits: tuple[int, str]
) -> None:
    await _moves(desk, clock, "America/New_York", "Europe/London", moved, sent_before, waits)


@pytest.mark.parametrize(
    ("moved", "sent_before", "waits"),
    [
        ("2026-05-31 12:00", 0, (2026, "2026-06-01 16:00")),
        (
            "2026-06-01 00:01",
            1,
            (2027, "2027-06-01 16:00"),
        ),  # sent by Tokyo's clocks: not again by those of Los Angeles
        ("2026-06-01 15:00", 1, (2027, "2027-06-01 16:00")),
        ("2026-06-02 12:00", 1, (2027, "2027-06-01 16:00")),
    ],
)
async def test_from_tokyo_to_los_angeles(
    desk: Desk, clock: ManualClock, moved: str, sent_before: int, waits: tuple[int, str]
) -> None:
    await _moves(desk, clock, "Asia/Tokyo", "America/Los_Angeles", moved, sent_before, waits)


async def _moves(
    desk: Desk, clock: ManualClock, old: str, new: str, moved: str, sent_before: int, waits: tuple[int, str]
) -> None:
    at(clock, "2026-05-30 12:00")
    ada = await desk.user(born=date(1990, 6, 1), timezone=old)
    at(clock, moved)
    await desk.sweep()
    assert len(desk.receiver.received) == sent_before
    await desk.change(ada, timezone=new)
    assert await desk.moments(ada) == [waits]
    at(clock, "2027-05-30 12:00")
    await desk.sweep()
    assert len(desk.receiver.received) == 1, "one message for 2026"
    assert await desk.states(ada) == [(2026, "COMPLETED"), (2027, "PENDING")]


async def test_moving_there_and_back_changes_nothing(desk: Desk) -> None:
    ada = await desk.user(born=date(1990, 12, 1), timezone="Asia/Tokyo")
    before = await desk.moments(ada)
    await desk.change(ada, timezone="America/Los_Angeles")
    assert await desk.moments(ada) != before
    await desk.change(ada, timezone="Asia/Tokyo")
    assert await desk.moments(ada) == before


@pytest.mark.parametrize(
    ("born", "corrected", "waits"),
    [
        (date(1990, 12, 1), date(1990, 11, 1), (2026, "2026-11-01 09:00")),
        (date(1990, 12, 1), date(1990, 2, 1), (2027, "2027-02-01 09:00")),
        (date(1990, 2, 1), date(1990, 12, 1), (2026, "2026-12-01 09:00")),  # none was sent for 2026
        (date(1990, 12, 1), date(1980, 12, 1), (2026, "2026-12-01 09:00")),
        (date(1990, 12, 1), date(1992, 2, 29), (2027, "2027-02-28 09:00")),
    ],
)
async def test_a_birthday_that_is_corrected_is_the_next_one_to_come(
    desk: Desk, born: date, corrected: date, waits: tuple[int, str]
) -> None:
    ada = await desk.user(born=born)
    await desk.change(ada, date_of_birth=corrected)
    assert await desk.moments(ada) == [waits]


async def test_a_birthday_that_is_corrected_after_the_message_is_next_years(desk: Desk) -> None:
    ada = await desk.due()
    await desk.sweep()
    await desk.change(ada, date_of_birth=date(1990, 12, 1))
    assert await desk.states(ada) == [(2026, "COMPLETED"), (2027, "PENDING")]
    assert await desk.moments(ada) == [(2027, "2027-12-01 09:00")]


async def test_a_birthday_that_is_corrected_while_its_message_fails_keeps_year_and_key(
    desk: Desk, clock: ManualClock
) -> None:
    """It may have arrived: under another key, or in the next year under this one, it would come twice or not at all."""
    ada = await desk.due()
    desk.receiver.answer = lambda message: 500
    await desk.sweep()
    await desk.change(ada, date_of_birth=date(1990, 7, 1))
    assert await desk.moments(ada) == [(2026, "2026-07-01 09:00")]
    desk.receiver.answer = lambda message: 200
    at(clock, "2026-07-01 09:00")
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "COMPLETED"), (2027, "PENDING")]
    assert await desk.moments(ada) == [(2027, "2027-07-01 09:00")]
    assert len(set(desk.receiver.keys("Ada"))) == 1


async def test_nobody_is_congratulated_months_after_a_corrected_birthday(desk: Desk, clock: ManualClock) -> None:
    ada = await desk.due()
    desk.receiver.answer = lambda message: 500
    await desk.sweep()
    await desk.change(ada, date_of_birth=date(1990, 2, 1))
    assert await desk.states(ada) == [(2026, "DEAD"), (2027, "PENDING")]
    assert await desk.moments(ada) == [(2027, "2027-02-01 09:00")]
    assert "corrected to 01 February" in (await desk.events(ada))[0]["last_error"]
    desk.receiver.answer = lambda message: 200
    clock.advance(days=1)
    await desk.sweep()
    assert len(desk.receiver.received) == 1, "the one that failed"


@pytest.mark.parametrize(
    ("entered", "corrected", "change", "waits"),
    [  # it is noon of 1 June in UTC
        ("UTC", "America/New_York", {}, (2026, "2026-06-01 13:00")),
        ("Asia/Tokyo", "Pacific/Honolulu", {}, (2026, "2026-06-01 19:00")),
        ("UTC", "Europe/London", {}, (2027, "2027-06-01 08:00")),  # past nine there as well
        ("UTC", "Asia/Tokyo", {}, (2027, "2027-06-01 00:00")),
        ("America/New_York", "Asia/Tokyo", {}, (2026, "2026-06-01 00:00")),  # it was to come: at once
        ("UTC", "UTC", {"date_of_birth": date(1990, 6, 2)}, (2026, "2026-06-02 09:00")),
    ],
)
async def test_a_user_corrected_on_the_birthday_still_gets_this_years_message(
    desk: Desk, entered: str, corrected: str, change: dict[str, date], waits: tuple[int, str]
) -> None:
    ada = await desk.user(born=date(1990, 6, 1), timezone=entered)
    await desk.change(ada, timezone=corrected, **change)
    assert await desk.moments(ada) == [waits]


async def test_a_date_corrected_to_today_is_congratulated_at_once(desk: Desk) -> None:
    ada = await desk.user(born=date(1990, 6, 2))
    await desk.change(ada, date_of_birth=date(1990, 6, 1))
    await desk.sweep()
    assert await desk.states(ada) == [(2026, "COMPLETED"), (2027, "PENDING")]


# -- other rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "born", "before", "after"),
    [
        ({"BIRTHDAYS_SEND_AT": "18:30"}, date(1990, 12, 1), (2026, "2026-12-01 09:00"), (2026, "2026-12-01 18:30")),
        ({"BIRTHDAYS_SEND_AT": "18:30"}, date(1990, 6, 1), (2027, "2027-06-01 09:00"), (2026, "2026-06-01 18:30")),
        ({"BIRTHDAYS_LEAP_DAY": "mar1"}, date(1992, 2, 29), (2027, "2027-02-28 09:00"), (2027, "2027-03-01 09:00")),
        ({"BIRTHDAYS_LEAP_DAY": "skip"}, date(1992, 2, 29), (2027, "2027-02-28 09:00"), (2028, "2028-02-29 09:00")),
    ],
)
async def test_other_rules_plan_anew_at_the_start_what_has_not_begun(
    desk: Desk, variables: dict[str, str], born: date, before: tuple[int, str], after: tuple[int, str]
) -> None:
    ada = await desk.user(born=born)
    begun = await desk.due("Bob")
    desk.receiver.answer = lambda message: 500
    await desk.sweep()
    as_it_was = await desk.events(begun)
    assert await desk.moments(ada) == [before]
    changed = replace(desk.service.config, rules=Config.from_environment({**ENVIRONMENT, **variables}).rules)
    await replace(desk.service, config=changed).prepare()
    assert await desk.moments(ada) == [after]
    assert await desk.events(begun) == as_it_was, "it may have arrived"


async def test_other_time_zone_data_plan_anew_in_batches_and_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    users = [await desk.user(f"user {number}", born=date(1990, 12, 1)) for number in range(5)]
    await desk.do("update users set timezone = 'Nowhere/Land' where id = %s", [users[2]])
    await desk.do("update events set target_timestamp_utc = '2026-12-01 10:00Z'")  # as earlier data had it
    monkeypatch.setattr(planning, "tz_version", lambda: "2099z")
    rounds = 0
    more = True
    while more:
        async with desk.app.transaction() as tx:
            more = await people.plan_some_anew(tx, desk.rules, now=desk.clock.now(), most=2)
        rounds += 1
    assert rounds == 3
    moments = [(await desk.moments(each))[0][1] for each in users]
    assert moments == ["2026-12-01 09:00"] * 2 + ["2026-12-01 10:00"] + ["2026-12-01 09:00"] * 2
    await desk.do("update events set target_timestamp_utc = '2026-12-01 10:00Z'")
    await desk.service.prepare()
    assert (await desk.moments(users[0]))[0][1] == "2026-12-01 10:00", "nothing is touched when the rules are the same"


@pytest.mark.parametrize("born", ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"])
async def test_a_birthday_that_cannot_be_read_is_refused_and_keeps_no_process_from_its_start(
    desk: Desk, born: str
) -> None:
    ada = await desk.user(born=date(1990, 12, 1))
    bob = await desk.user("Bob")
    unreadable = "update users set date_of_birth = %s where id = %s"
    for column in ("target_timestamp_utc", "next_attempt_at", "executed_at"):
        with pytest.raises(CheckViolation):
            await desk.do(f"update events set {column} = %s where user_id = %s", [born, bob])
    with pytest.raises(CheckViolation):
        await desk.do(unreadable, [born, bob])
    await desk.do("alter table users drop constraint users_date_of_birth")  # as one that was stored before it was there
    await desk.do(unreadable, [born, bob])
    await desk.do("update events set target_timestamp_utc = target_timestamp_utc + interval '1 hour'")
    await desk.do("update planning set rules = 'other ones'")
    await desk.service.prepare()
    assert await desk.moments(ada) == [(2026, "2026-12-01 09:00")]


async def test_a_correction_and_a_revived_dead_letter_make_one_message_for_a_year(desk: Desk) -> None:
    ada = await desk.due()
    desk.receiver.answer = lambda message: 400
    await desk.sweep()
    await desk.worker.run_pending()
    assert await desk.requeue() == 1
    assert await desk.states(ada) == [(2026, "PENDING"), (2027, "PENDING")]
    await desk.change(ada, date_of_birth=date(1990, 12, 1))
    assert await desk.moments(ada) == [(2026, "2026-12-01 09:00"), (2027, "2027-12-01 09:00")]


async def test_with_29_february_left_out_a_message_that_is_being_tried_stays_where_it_was(open_desk: OPEN) -> None:
    desk = await open_desk(BIRTHDAYS_LEAP_DAY="skip")
    ada = await desk.due()
    desk.receiver.answer = lambda message: 500
    await desk.sweep()
    before = await desk.moments(ada)
    await desk.change(ada, date_of_birth=date(1992, 2, 29))
    assert await desk.moments(ada) == before
    born = await desk.user("Bob", born=date(1990, 12, 1))
    await desk.change(born, date_of_birth=date(1992, 2, 29))
    assert await desk.moments(born) == [(2028, "2028-02-29 09:00")]


async def test_a_deleted_user_is_sent_nothing(desk: Desk) -> None:
    ada = await desk.due()
    await desk.delete(ada)
    assert (await desk.sweep()).claimed == 0
    assert desk.receiver.received == []
    assert await desk.events() == []


async def test_another_name_changes_no_message_and_is_read_when_it_is_sent(desk: Desk) -> None:
    ada = await desk.due()
    before = await desk.events(ada)
    await desk.change(ada, first_name="Augusta")
    assert await desk.events(ada) == before
    await desk.sweep()
    assert desk.receiver.messages == ["Hey, Augusta L. it's your birthday"]


async def test_next_years_message_waits_for_a_move_that_is_under_way(desk: Desk) -> None:
    """Or it would be planned by the clocks that the user is just leaving."""
    ada = await desk.due()
    await desk.do("update events set status = 'DEAD'")

    async def move(side: Side) -> None:
        await people.update(side.connection, desk.rules, ada, now=desk.clock.now(), timezone="Asia/Tokyo")

    async def plan_next(side: Side) -> None:
        await people.plan_next(side.connection, desk.rules, ada, 2026)

    _, planned = await interleave(desk.app.store, move, plan_next)
    assert planned.error is None
    assert await desk.moments(ada) == [(2027, "2027-01-01 00:00")]


async def test_a_move_waits_for_a_message_that_is_just_becoming_sent(desk: Desk) -> None:
    """Or it would not see next year's, which comes with it."""
    ada = await desk.due()
    (event,) = await desk.events(ada)

    async def sent(side: Side) -> None:
        await people.plan(side.connection, ada, Planned(2027, datetime(2027, 1, 1, 9, tzinfo=UTC)))
        await side.connection.execute("update events set status = 'COMPLETED' where id = %s", [event["id"]])

    async def move(side: Side) -> None:
        await people.update(side.connection, desk.rules, ada, now=desk.clock.now(), timezone="Asia/Tokyo")

    _, moved = await interleave(desk.app.store, sent, move)
    assert moved.error is None
    assert await desk.moments(ada) == [(2027, "2027-01-01 00:00")]


async def test_a_message_for_a_user_who_is_just_being_deleted_is_not_planned(desk: Desk) -> None:
    ada = await desk.due()

    async def delete(side: Side) -> None:
        await people.delete(side.connection, ada)

    async def plan(side: Side) -> None:
        await people.plan(side.connection, ada, Planned(2027, datetime(2027, 1, 1, 9, tzinfo=UTC)))

    _, planned = await interleave(desk.app.store, delete, plan)
    assert planned.error is None
    assert await desk.events() == []
