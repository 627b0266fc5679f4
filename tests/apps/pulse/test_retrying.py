"""Four calls, after 1, 2 and 4 seconds, and no more than that."""

from __future__ import annotations

import asyncio
import logging

import psycopg
import pytest

from apps.pulse.retrying import RETRY, Permanent, retrying, told
from trueup import LostClaim, LostLease

pytestmark = pytest.mark.asyncio


class Calls:
    """Fails with these errors one after the other, and then answers."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.count = 0
        self.slept: list[float] = []

    async def __call__(self) -> str:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def retried(self) -> str:
        return await retrying("Health check of project 7", self, sleep=self.sleep)


async def test_what_works_is_called_once() -> None:
    calls = Calls()
    assert await calls.retried() == "answer"
    assert (calls.count, calls.slept) == (1, [])


async def test_three_failures_are_retried_after_exactly_1_2_and_4_seconds(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls(ConnectionError("a"), TimeoutError("b"), psycopg.OperationalError("c"))
    with caplog.at_level(logging.WARNING, "pulse"):
        assert await calls.retried() == "answer"
    assert (calls.count, calls.slept) == (4, [1.0, 2.0, 4.0])
    assert [record.getMessage() for record in caplog.records] == [
        "Health check of project 7: Attempt 1 failed, retrying in 1000ms",
        "Health check of project 7: Attempt 2 failed, retrying in 2000ms",
        "Health check of project 7: Attempt 3 failed, retrying in 4000ms",
    ]
    assert [record.__dict__["delay_ms"] for record in caplog.records] == [1000, 2000, 4000]
    assert caplog.records[0].__dict__["error"] == "ConnectionError: a"
    assert {record.levelname for record in caplog.records} == {"WARNING"}


async def test_the_fourth_failure_is_the_last_and_is_raised_as_it_is() -> None:
    last = ConnectionError("the last one")
    calls = Calls(ConnectionError("1"), ConnectionError("2"), ConnectionError("3"), last)
    with pytest.raises(ConnectionError) as raised:
        await calls.retried()
    assert raised.value is last
    assert (calls.count, calls.slept) == (4, [1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    "error",
    [
        Permanent("no"),
        LostClaim("gone"),
        LostLease("cron:x", 1),
        psycopg.DataError("NaN"),
        psycopg.IntegrityError("twice"),
        psycopg.ProgrammingError("no such table"),
    ],
)
async def test_a_permanent_error_is_not_retried(error: Exception) -> None:
    calls = Calls(error)
    with pytest.raises(type(error)):
        await calls.retried()
    assert (calls.count, calls.slept) == (1, [])


async def test_to_be_cancelled_is_no_failure() -> None:
    calls = Calls(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await calls.retried()
    assert calls.count == 1


async def test_delays_grow_up_to_ten_seconds() -> None:
    assert [RETRY.delay(attempt).total_seconds() for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain", "plain"), ("two\nlines", "two lines"), ("a\x00b", "ab"), ("half \ud800", "half ?"), ("é🎂", "é🎂")],
)
async def test_an_error_is_told_in_one_line_that_can_be_stored(text: str, shown: str) -> None:
    assert told(ValueError(text)) == f"ValueError: {shown}"


async def test_a_long_error_is_cut() -> None:
    assert len(told(ValueError("x" * 100_000))) == 500
