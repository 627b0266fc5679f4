"""Jobs for all addresses at a tick: once, all or none, under one lock."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from apps.addresses import scheduling, service
from apps.addresses.scheduling import LOCK, Created
from apps.addresses.service import QUEUE, SCHEDULE
from tests.apps.addresses.desk import Desk
from tests.support.matrix import count
from tests.support.watching import until
from trueup import App
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

OPEN = Callable[..., Awaitable[Desk]]
ADDRESSES = [f"0x{number:040x}" for number in range(1, 4)]
LOCKS = "select pid from pg_locks where locktype = 'advisory' and objid = %s and database = (select oid from pg_database where datname = current_database())"


@pytest_asyncio.fixture
async def desk(open_desk: OPEN) -> AsyncIterator[Desk]:
    yield await open_desk()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str, dict[str, Any]]]]:
    """Level, text and facts of what the application has logged so far."""
    caplog.set_level(logging.INFO, "addresses")

    def told() -> list[tuple[str, str, dict[str, Any]]]:
        ours = [record for record in caplog.records if record.name == "addresses"]
        return [(record.levelname, record.message, vars(record)) for record in ours]

    return told


TOLD = Callable[[], list[tuple[str, str, dict[str, Any]]]]


def texts(told: TOLD) -> list[tuple[str, str]]:
    return [(level, text) for level, text, _ in told()]


@contextmanager
def somebody_else(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Who has the lock, on a connection of its own."""
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("select pg_advisory_lock(%s)", [LOCK])
        yield other


def holders(url: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as other:
        return [pid for (pid,) in other.execute(LOCKS, [LOCK])]


async def test_three_addresses_give_three_jobs_all_partial(desk: Desk, told: TOLD, database_url: str) -> None:
    await desk.monitor(*ADDRESSES)
    result = await desk.tick()
    expected = {"scheduled": 3, "errors": 0, "already_active": 0, "skipped": False, "lock_acquired": True}
    assert result == expected
    jobs = await desk.jobs()
    assert [(job["address"], job["mode"], job["status"]) for job in jobs] == [
        (address, "partial", "pending") for address in ADDRESSES
    ]
    assert {job["tick"] for job in jobs} == {desk.clock.now()}
    assert texts(told) == [
        ("INFO", "Reconciliation scheduling started"),
        ("INFO", "Reconciliation scheduling completed"),
    ]
    facts = told()[-1][2]
    assert {name: facts[name] for name in expected} == expected
    assert (facts["attempt"], facts["tick"]) == (1, desk.clock.now().isoformat())
    assert 0 <= facts["duration_ms"] < 60_000
    assert holders(database_url) == []


async def test_addresses_that_are_not_monitored_get_none(desk: Desk) -> None:
    await desk.monitor(*ADDRESSES)
    await desk.do("update addresses set is_monitored = false where address = %s", [ADDRESSES[0]])
    assert (await desk.tick())["scheduled"] == 2


async def test_without_any_address_it_is_told_all_the_same(desk: Desk, told: TOLD) -> None:
    assert (await desk.tick())["scheduled"] == 0
    level, text, facts = told()[-1]
    assert (level, text, facts["scheduled"]) == ("INFO", "Reconciliation scheduling completed", 0)


async def test_a_lock_held_on_another_connection_skips_the_tick_without_a_retry(
    desk: Desk, told: TOLD, database_url: str, clock: ManualClock
) -> None:
    await desk.monitor(*ADDRESSES)
    with somebody_else(database_url):
        result = await desk.tick()
    assert (result["skipped"], result["lock_acquired"], result["scheduled"]) == (True, False, 0)
    level, text, facts = told()[-1]
    assert (level, text) == ("INFO", "Another instance handling")
    assert (facts["skipped"], facts["lock_acquired"], facts["attempt"]) == (True, False, 1)
    clock.advance(hours=1)
    assert await desk.worker.run_pending() == 0, "it is not tried again"
    assert await desk.jobs() == []


async def test_the_lock_is_held_while_jobs_are_created_and_by_nobody_afterwards(
    desk: Desk, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.monitor(*ADDRESSES)
    held: list[tuple[list[int], int]] = []

    async def create(tx: Any, tick: datetime) -> Created:
        created = await scheduling.create_jobs(tx, tick)
        held.append((holders(database_url), tx.info.backend_pid))
        return created

    monkeypatch.setattr(service, "create_jobs", create)
    await desk.tick()
    ((pids, own),) = held
    assert pids == [own], "by the very connection that creates the jobs"
    assert holders(database_url) == []


async def test_the_lock_is_free_after_a_failure(
    desk: Desk, database_url: str, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    await desk.monitor(*ADDRESSES)

    async def broken(tx: Any, tick: datetime) -> Created:
        await scheduling.create_jobs(tx, tick)
        assert len(holders(database_url)) == 1
        raise RuntimeError("at the very end")

    monkeypatch.setattr(service, "create_jobs", broken)
    await desk.app.schedules.trigger(SCHEDULE)
    await desk.worker.run_pending()
    assert holders(database_url) == []
    assert await desk.jobs() == [], "and nothing was half-created"
    monkeypatch.undo()
    clock.advance(seconds=1)
    assert await desk.worker.run_pending() == 1
    assert len(await desk.jobs()) == 3


async def test_an_address_with_an_active_job_is_counted_and_gets_no_second_one(desk: Desk, told: TOLD) -> None:
    await desk.monitor(*ADDRESSES)
    await desk.job(ADDRESSES[0])
    await desk.job(ADDRESSES[1])
    await desk.do("update reconciliation_jobs set status = 'running' where address = %s", [ADDRESSES[1]])
    result = await desk.tick()
    assert (result["scheduled"], result["already_active"], result["errors"]) == (1, 2, 0)
    assert told()[-1][0] == "INFO", "that is no error"
    assert len(await desk.jobs()) == 3


async def test_bad_addresses_are_errors_and_the_others_go_on(desk: Desk, told: TOLD) -> None:
    await desk.monitor(*ADDRESSES, "0xnonsense", "", "zero\u202etag")
    await desk.monitor("plain", chain="nobody-knows")
    result = await desk.tick()
    assert (result["scheduled"], result["errors"]) == (4, 3)
    assert texts(told)[1:] == [
        ("ERROR", "Address not scheduled"),
        ("ERROR", "Address not scheduled"),
        ("ERROR", "Address not scheduled"),
        ("WARNING", "Reconciliation scheduling completed with errors"),
    ]
    assert told()[1][2]["address"] == "0xnonsense"
    assert told()[-1][2]["errors"] == 3


async def test_addresses_that_the_database_refuses_are_found_and_the_others_go_on(desk: Desk, told: TOLD) -> None:
    """Whatever it is that is wrong with them: here, a rule that somebody has added to the table."""
    many = [f"0x{number:040x}" for number in range(1, 200)]
    await desk.monitor(*many)
    await desk.do(
        "alter table reconciliation_jobs add constraint unlucky check (address not in (%s, %s))".replace(
            "%s", "'{}'"
        ).format(many[12], many[112])
    )
    result = await desk.tick()
    assert (result["scheduled"], result["errors"], result["already_active"]) == (197, 2, 0)
    errors = [facts for level, _, facts in told() if level == "ERROR"]
    assert [facts["address"] for facts in errors] == [many[12], many[112]]
    assert all("unlucky" in facts["error"] for facts in errors)


async def test_when_the_database_refuses_them_all_it_is_not_the_addresses_fault(desk: Desk, told: TOLD) -> None:
    await desk.monitor(*[f"0x{number:040x}" for number in range(1, 200)])
    await desk.do("alter table reconciliation_jobs add constraint none_at_all check (false)")
    await desk.app.schedules.trigger(SCHEDULE)
    await desk.worker.run_pending()
    assert texts(told)[-1] == ("WARNING", "Reconciliation scheduling failed, retrying")


async def test_failures_are_retried_after_one_two_and_four_seconds_and_then_critical(
    desk: Desk, told: TOLD, clock: ManualClock
) -> None:
    await desk.monitor(*ADDRESSES)
    await desk.do("alter table reconciliation_jobs rename to elsewhere")
    await desk.app.schedules.trigger(SCHEDULE)
    assert await desk.worker.run_pending() == 1
    for delay in (1, 2, 4):
        clock.advance(seconds=delay - 0.001)
        assert await desk.worker.run_pending() == 0, "not a moment sooner"
        clock.advance(seconds=0.001)
        assert await desk.worker.run_pending() == 1
    clock.advance(hours=1)
    assert await desk.worker.run_pending() == 0, "four times in all"
    retries = [facts for level, text, facts in told() if level == "WARNING"]
    assert [facts["delay_ms"] for facts in retries] == [1000, 2000, 4000]
    assert [facts["attempt"] for facts in retries] == [1, 2, 3]
    level, text, facts = told()[-1]
    assert (level, text, facts["attempt"]) == ("CRITICAL", "Reconciliation scheduling exhausted", 4)
    assert "reconciliation_jobs" in facts["error"]


async def test_delays_are_capped_at_thirty_seconds() -> None:
    assert [service.SCHEDULING.delay(attempt).total_seconds() for attempt in (1, 2, 3, 5, 6, 50)] == [
        1,
        2,
        4,
        16,
        30,
        30,
    ]
    assert service.SCHEDULING.max_attempts == 4


async def test_after_an_exhausted_tick_the_next_one_is_as_usual(desk: Desk, clock: ManualClock) -> None:
    await desk.monitor(*ADDRESSES)
    await desk.do("alter table reconciliation_jobs rename to elsewhere")
    clock.advance(hours=14)  # two in the morning
    await plan(desk)
    for delay in (0, 1, 2, 4):
        clock.advance(seconds=delay)
        assert await desk.worker.run_pending() == 1
    await desk.do("alter table elsewhere rename to reconciliation_jobs")
    clock.advance(days=1)
    await plan(desk)
    assert await desk.worker.run_pending() == 1
    jobs = await desk.jobs()
    assert [job["tick"] for job in jobs] == [datetime(2026, 6, 3, 2, tzinfo=UTC)] * 3


async def plan(desk: Desk) -> None:
    while (await desk.worker.worker.ticker.plan()).more:
        pass


async def test_it_ticks_at_two_in_the_morning_utc(desk: Desk, clock: ManualClock) -> None:
    shown = await desk.app.schedules.show(SCHEDULE)
    assert shown["next_due_at"] == datetime(2026, 6, 2, 2, tzinfo=UTC)
    await desk.monitor(*ADDRESSES)
    clock.advance(hours=13, minutes=59, seconds=59)
    await plan(desk)
    assert await desk.worker.run_pending() == 0
    clock.advance(seconds=1)
    await plan(desk)
    assert await desk.worker.run_pending() == 1
    assert len(await desk.jobs()) == 3


async def test_a_connection_that_breaks_is_retried(
    desk: Desk, told: TOLD, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    await desk.monitor(*ADDRESSES)

    async def broken(tx: Any, tick: datetime) -> Created:
        await scheduling.create_jobs(tx, tick)
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s)", [tx.info.backend_pid])
        return await scheduling.create_jobs(tx, tick)

    monkeypatch.setattr(service, "create_jobs", broken)
    await desk.app.schedules.trigger(SCHEDULE)
    await desk.worker.run_pending()
    assert texts(told)[-1] == ("WARNING", "Reconciliation scheduling failed, retrying")
    assert await desk.jobs() == []
    assert holders(database_url) == []
    monkeypatch.undo()
    clock.advance(seconds=1)
    await desk.worker.run_pending()
    assert len(await desk.jobs()) == 3


async def test_a_second_attempt_waits_for_the_lock_which_may_be_that_of_the_first(
    desk: Desk, clock: ManualClock, database_url: str, told: TOLD
) -> None:
    """An instance that died or froze while it had the lock: its server process may be there for a while longer."""
    await desk.monitor(*ADDRESSES)
    await desk.do("alter table reconciliation_jobs rename to elsewhere")
    await desk.app.schedules.trigger(SCHEDULE)
    await desk.worker.run_pending()
    await desk.do("alter table elsewhere rename to reconciliation_jobs")
    clock.advance(seconds=1)
    with somebody_else(database_url) as first:
        running = asyncio.create_task(desk.worker.run_pending())
        waiting = (
            "select from pg_stat_activity where state = 'idle in transaction' and query like '%%pg_try_advisory%%'"
        )
        await until(lambda: first.execute(waiting).fetchone() is not None)
    await running
    assert texts(told)[-1] == ("INFO", "Reconciliation scheduling completed")
    assert len(await desk.jobs()) == 3


async def test_a_run_that_was_done_twice_would_be_refused_its_jobs(desk: Desk) -> None:
    """The last of three walls: one set of jobs per tick, whatever has become of them."""
    await desk.monitor(*ADDRESSES)
    at = datetime(2026, 6, 2, 2, tzinfo=UTC)
    async with desk.app.transaction() as tx:
        assert (await scheduling.create_jobs(tx, at)).scheduled == 3
    await desk.do("update reconciliation_jobs set status = 'completed'")
    async with desk.app.transaction() as tx:
        assert (await scheduling.create_jobs(tx, at)).scheduled == 0
    assert len(await desk.jobs()) == 3


@pytest.mark.slow
async def test_tens_of_thousands_of_addresses_in_one_tick_take_seconds(desk: Desk) -> None:
    many = count(20_000, proof=100_000)
    await desk.do(
        "insert into addresses (address, chain) select '0x' || lpad(to_hex(n), 40, '0'), 'ethereum'"
        f" from generate_series(1, {many}) as n"
    )
    started = time.monotonic()
    result = await desk.tick()
    took = time.monotonic() - started
    assert (result["scheduled"], result["already_active"]) == (many, 0)
    assert took < 20, "two on a quiet machine for a hundred thousand"
    desk.clock.advance(seconds=1)
    again = await desk.tick()
    assert (again["scheduled"], again["already_active"]) == (0, many)


# -- enabled, or not --------------------------------------------------------------------------------------------------


async def test_disabled_means_that_nothing_is_registered(still: App, clock: ManualClock) -> None:
    for word in ("false", "", "True", "TRUE", "1", "yes", " true"):
        desk = Desk(still, clock, RECONCILIATION_SCHEDULER_ENABLED=word, RECONCILIATION_WORKER_ENABLED=word)
        await desk.begin()
        assert await still.schedules.list() == []
        assert await still.reconcilers.list() == []
        assert len(still.registry) == 0
        assert not desk.service.has_work
        await desk.end()


async def test_scheduler_and_worker_are_enabled_independently(still: App, clock: ManualClock) -> None:
    desk = Desk(still, clock, RECONCILIATION_WORKER_ENABLED="false")
    await desk.begin()
    assert [each["name"] for each in await still.schedules.list()] == [SCHEDULE]
    assert await still.reconcilers.list() == []
    await desk.end()


async def test_an_instance_without_the_scheduler_leaves_the_schedule_of_the_others_alone(
    desk: Desk, database_url: str
) -> None:
    other = App(database_url)
    only_worker = Desk(other, ManualClock(), RECONCILIATION_SCHEDULER_ENABLED="false")
    async with only_worker.service.worker():
        (schedule,) = await desk.app.schedules.list()
    assert (schedule["state"], schedule["queue"]) == ("active", QUEUE)
    await only_worker.service.close()
