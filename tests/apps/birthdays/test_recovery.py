"""After a downtime: the same sweep, oldest first, whatever was missed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from tests.apps.birthdays.desk import Desk, Receiver
from tests.support.matrix import count
from tests.support.watching import until
from trueup import App
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

OPEN = Callable[..., Awaitable[Desk]]


@pytest.mark.parametrize(
    ("down", "count"),
    [(timedelta(minutes=5), 2), (timedelta(hours=24), 70), (timedelta(hours=24), 100), (timedelta(days=400), 3)],
)
async def test_after_a_downtime_one_run_sends_all_that_was_missed_oldest_first(
    open_desk: OPEN, down: timedelta, count: int
) -> None:
    desk = await open_desk(BIRTHDAYS_CONCURRENCY="1")
    for number in range(count):
        await desk.due(f"user {number:03}", seconds=(down * (count - number) / count).total_seconds())
    counts = await desk.sweep()
    assert (counts.changed, counts.claimed) == (count, count)
    assert desk.receiver.messages == [f"Hey, user {number:03} L. it's your birthday" for number in range(count)]
    assert (await desk.sweep()).claimed == 0


async def test_messages_missed_in_two_years_are_both_sent(desk: Desk, clock: ManualClock) -> None:
    """Down for more than a year: this year's message is planned when last year's is sent, and found by the same sweep."""
    ada = await desk.due(days=400)
    await desk.do("update events set target_year = 2025")
    await desk.sweep()
    await desk.sweep()
    assert await desk.states(ada) == [(2025, "COMPLETED"), (2026, "COMPLETED"), (2027, "PENDING")]


@pytest.mark.slow
async def test_a_backlog_of_thousands_drains_steadily_under_the_rate_and_oldest_first(
    app: App, receiver: Receiver
) -> None:
    """A part of it: so many that a burst would show. The claims are those of any sweep, so the rest is more of the same."""
    rate, parts, backlog = count(25, proof=400), 4, count(1_000, proof=10_000)
    desk = Desk(app, ManualClock(), receiver, BIRTHDAYS_RATE=f"{rate}/s")  # real time: the App's own clock counts
    await desk.begin()
    await desk.do(
        "with u as (insert into users (first_name, last_name, date_of_birth, timezone)"
        " select lpad(n::text, 5, '0'), 'x', '1990-01-01', 'UTC' from generate_series(1, %s) as n returning id, first_name)"
        " insert into events (user_id, target_year, target_timestamp_utc)"
        " select id, 2026, now() - interval '1 day' + first_name::int * interval '5 s' from u order by random()",
        [backlog],
    )
    arrived: list[float] = []

    def answer(message: str) -> int:
        arrived.append(time.monotonic())
        return 200

    desk.receiver.answer = answer
    async with app.worker():
        await until(lambda: len(arrived) >= rate * parts, timeout=60)
    for first in range(0, rate * (parts - 1), rate):
        assert arrived[first + rate] - arrived[first] > 0.9, "never more than the rate allows in a second"
    order = [int(message.split()[1]) for message in desk.receiver.messages[: rate * parts]]
    assert max(abs(place - number) for place, number in enumerate(order, 1)) <= 20, "oldest first, ten at a time"
    await desk.end()
