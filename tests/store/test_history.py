from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.desk import Desk
from tests.support.watching import Watched
from trueup import App
from trueup.events import DatabaseLost, HistoryDayCreated, StatementTimedOut
from trueup.store.history import AHEAD, APART, SLACK, Kept, Look, Pruned, agreed, day_name, day_of, plan
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

DAY = timedelta(days=1)
TODAY = NOON.date()
KEPT = Kept(done=3 * DAY, cancelled=3 * DAY, dead=30 * DAY, ticks=90 * DAY, sweeps=30 * DAY)
STATES = ("done", "dead", "cancelled")


def days(first: int, last: int) -> list[date]:
    return [TODAY + timedelta(days=n) for n in range(first, last + 1)]


def test_today_and_the_coming_days_are_made() -> None:
    assert plan(NOON, 3 * DAY, set()) == (days(0, AHEAD), [])


def test_days_that_are_there_are_not_made_again() -> None:
    assert plan(NOON, 3 * DAY, set(days(0, 1))) == (days(2, AHEAD), [])


def test_a_day_is_dropped_only_when_all_of_it_is_past_its_time() -> None:
    assert plan(NOON, 3 * DAY, set(days(-6, AHEAD))) == ([], days(-6, -4))
    assert plan(NOON.replace(hour=0), 3 * DAY, set(days(-6, AHEAD))) == ([], days(-6, -4))


def test_days_are_those_of_utc() -> None:
    late = datetime(2026, 6, 1, 23, 30, tzinfo=UTC).astimezone(tz=None)
    assert plan(late, DAY, set())[0][0] == date(2026, 6, 1)


@given(
    now=st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    keep=st.timedeltas(timedelta(), timedelta(days=100)),
    age=st.timedeltas(timedelta(), timedelta(days=200)),
)
def test_no_row_is_dropped_before_its_time_and_none_stays_a_day_longer(
    now: datetime, keep: timedelta, age: timedelta
) -> None:
    finished_at = now - age
    _, dropped = plan(now, keep, {finished_at.date()})
    if age <= keep:
        assert dropped == []
    elif age > keep + DAY:
        assert dropped == [finished_at.date()]


def test_a_partitions_name_says_its_day() -> None:
    assert day_of(day_name("history_done", TODAY)) == TODAY
    assert day_of("history_done_rest") is None


async def partitions(desk: Desk, state: str) -> set[date | None]:
    query = "select array_agg(relname::text) from pg_class where relkind = 'r' and relname ~ %s"
    return {day_of(name) for name in await desk.scalar(query, f"^history_{state}_")}


async def finish(desk: Desk) -> int:
    job = await desk.running()
    await desk.store.jobs.complete(job.holder, [job], [None])
    return job.id


async def partition_of(desk: Desk, job_id: int) -> str:
    return str(await desk.scalar("select tableoid::regclass from trueup.history where id = %s", job_id))


@pytest.mark.asyncio
async def test_the_coming_days_are_made_ahead_for_every_state_and_only_once(desk: Desk, store: Store) -> None:
    before = {state: await partitions(desk, state) for state in STATES}
    pruned = await store.history.prune(KEPT)
    assert len(pruned.created) == (len(STATES) + 1) * (AHEAD + 1)
    assert {name for name in pruned.created if name.startswith("ticks")} == {
        day_name("ticks", day) for day in days(0, AHEAD)
    }
    assert pruned.dropped == []
    for state in STATES:
        assert await partitions(desk, state) == {*before[state], *days(0, AHEAD)}
    assert await store.history.prune(KEPT) == Pruned([], [])


@pytest.mark.asyncio
async def test_finished_jobs_go_to_their_day_and_leave_with_it(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.history.prune(KEPT)
    job_id = await finish(desk)
    assert await partition_of(desk, job_id) == f"trueup.{day_name('history_done', TODAY)}"
    clock.advance(days=3)
    assert day_name("history_done", TODAY) not in (await store.history.prune(KEPT)).dropped
    assert await desk.state(job_id) == "done"
    clock.advance(days=1)
    pruned = await store.history.prune(KEPT)
    assert sorted(pruned.dropped) == [day_name("history_cancelled", TODAY), day_name("history_done", TODAY)]
    assert await store.views.job(job_id) is None
    assert await partitions(desk, "dead") >= {TODAY}, "dead jobs are kept longer"


@pytest.mark.asyncio
async def test_a_job_that_finishes_on_a_day_without_partition_is_kept_and_expires(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    job_id = await finish(desk)
    assert await partition_of(desk, job_id) == "trueup.history_done_rest"
    clock.advance(days=2)
    await store.history.prune(KEPT)
    assert await desk.state(job_id) == "done"
    clock.advance(days=2)
    await store.history.prune(KEPT)
    assert await store.views.job(job_id) is None


@pytest.mark.asyncio
async def test_a_row_outside_any_day_does_not_keep_the_other_days_from_being_made(desk: Desk, store: Store) -> None:
    job_id = await finish(desk)
    await store.history.prune(KEPT)
    assert await partitions(desk, "done") >= set(days(1, AHEAD))
    assert await desk.state(job_id) == "done"
    assert await desk.state(await finish(desk)) == "done"


@pytest.mark.asyncio
async def test_housekeeping_that_was_down_for_weeks_catches_up(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.history.prune(KEPT)
    clock.advance(days=30)
    late = await finish(desk)
    pruned = await store.history.prune(KEPT)
    assert len([name for name in pruned.dropped if name.startswith("history_done")]) == AHEAD + 1
    assert await partitions(desk, "done") >= set(days(31, 30 + AHEAD))
    assert await desk.state(late) == "done"


@pytest.mark.asyncio
async def test_two_pruners_at_once_share_the_work_and_neither_fails(desk: Desk, store: Store) -> None:
    pruned = await asyncio.gather(*(store.history.prune(KEPT) for _ in range(4)))
    created = [name for each in pruned for name in each.created]
    assert len(created) == len(set(created))
    await store.history.prune(KEPT)
    for state in STATES:
        assert await partitions(desk, state) >= {*days(0, AHEAD), None}


@pytest.mark.asyncio
async def test_a_pruner_leaves_a_locked_day_for_the_next_pass(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.history.prune(KEPT)
    clock.advance(days=5)
    async with store.pool.transaction() as connection:
        await connection.execute(f"select from trueup.{day_name('history_done', TODAY)}".encode())
        first = await store.history.prune(KEPT)
        assert day_name("history_done", TODAY) not in first.dropped
        assert day_name("history_cancelled", TODAY) in first.dropped, "the others are not held up"
    clock.advance(minutes=2)
    assert day_name("history_done", TODAY) in (await store.history.prune(KEPT)).dropped


@pytest.mark.slow
@pytest.mark.asyncio
async def test_readers_of_the_whole_history_and_a_pruner_do_not_deadlock(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await finish(desk)
    stop = asyncio.Event()

    async def read() -> int:
        reads = 0
        while not stop.is_set():
            async with store.pool.transaction() as connection:
                await connection.execute("select count(*) from trueup.history")
                await connection.execute("select id from trueup.history where id = 1")
            reads += 1
        return reads

    readers = [asyncio.create_task(read()) for _ in range(4)]
    for _ in range(6):
        await store.history.prune(KEPT)
        clock.advance(days=3)
    stop.set()
    assert min(await asyncio.wait_for(asyncio.gather(*readers), 30)) > 0


@pytest.mark.asyncio
async def test_unique_windows_that_have_passed_are_removed(desk: Desk, store: Store, clock: ManualClock) -> None:
    await desk.put(unique_key="short", unique_for=timedelta(hours=1))
    await desk.put(unique_key="long", unique_for=timedelta(hours=3))
    await store.history.prune(KEPT)
    clock.advance(hours=2)
    await store.history.prune(KEPT)
    assert await desk.scalar("select array_agg(unique_key) from trueup.unique_windows") == ["long"]


@pytest.mark.asyncio
async def test_the_record_of_sweeps_goes_by_age(store: Store, clock: ManualClock) -> None:
    desk = Desk(store)
    for hours in (1, 24 * 31):
        await desk.scalar(
            "insert into trueup.sweeps (reconciler, holder, started_at, ended_at, claimed, changed, unchanged, conflict, retry,"
            " quarantined, lost, late, worst_lateness_s, total_lateness_s, lateness)"
            " values ('r', gen_random_uuid(), %s, %s, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, '{}') returning id",
            clock.now() - timedelta(hours=hours),
            clock.now() - timedelta(hours=hours),
        )
    for _ in range(2):
        await store.history.prune(KEPT)
        clock.advance(hours=1)
    assert await desk.scalar("select array_agg(started_at) from trueup.sweeps") == [clock.now() - timedelta(hours=3)]


# -- a clock that jumps --------------------------------------------------------------------------------------------------


def test_a_moment_that_one_pass_alone_has_seen_removes_nothing() -> None:
    assert agreed(NOON, 100.0, None) is None
    assert agreed(NOON, 100.0, Look(NOON, 100.0 - APART / 2)) is None, (
        "two passes right after each other may both be wrong"
    )
    later = timedelta(seconds=600)
    assert agreed(NOON + later, 700.0, Look(NOON, 100.0)) == NOON + later
    assert agreed(NOON + 365 * DAY, 700.0, Look(NOON, 100.0)) == NOON + later + SLACK, "ahead now"
    assert agreed(NOON + later, 700.0, Look(NOON + 365 * DAY, 100.0)) == NOON + later, "ahead at the earlier one"
    assert agreed(NOON - DAY, 700.0, Look(NOON, 100.0)) == NOON - DAY, "behind"


class Jumping(ManualClock):
    """Its moments are those of a database whose clock is wrong for a while; the process' own time goes on evenly."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.mark.asyncio
async def test_dead_letters_survive_a_database_clock_that_is_ahead_for_one_pass(database_url: str) -> None:
    clock = Jumping()
    async with App(database_url, clock=clock) as app:
        store, desk = app.store, Desk(app.store)
        in_rest = await desk.dead()
        clock.advance(days=1)
        await store.history.prune(KEPT)
        in_its_day = await desk.dead()
        await desk.put(unique_key="taken", unique_for=timedelta(days=100))
        clock.advance(minutes=10)
        clock.ahead = timedelta(days=365)
        assert (await store.history.prune(KEPT)).dropped == []
        clock.ahead = timedelta()
        clock.advance(minutes=10)
        assert (await store.history.prune(KEPT)).dropped == []
        assert [await desk.state(job_id) for job_id in (in_rest, in_its_day)] == ["dead", "dead"]
        assert await desk.scalar("select count(*) from trueup.unique_windows") == 1
        clock.ahead = timedelta(days=365)  # and when it stays ahead, that is the time
        clock.advance(minutes=10)
        await store.history.prune(KEPT)
        clock.advance(minutes=10)
        assert day_name("history_dead", TODAY + DAY) in (await store.history.prune(KEPT)).dropped
        assert await desk.scalar("select count(*) from trueup.history where state = 'dead'") == 0


# -- readers and other workers -------------------------------------------------------------------------------------------


@contextmanager
def reading(url: str) -> Iterator[psycopg.Connection]:
    """A transaction that has read all of the history and the ledger, for a while, as a pg_dump has."""
    with psycopg.connect(url) as connection:
        connection.execute("select count(*) from trueup.history")
        connection.execute("select count(*) from trueup.ticks")
        connection.execute("select pg_sleep(0.1)")
        yield connection


@pytest.mark.asyncio
async def test_housekeeping_beside_a_long_reader_makes_nobody_wait_and_is_done_afterwards(
    database_url: str, clock: ManualClock
) -> None:
    async with App(database_url, clock=clock) as app:
        store, desk, events = app.store, Desk(app.store), Watched(app)
        line = store.own_connection("housekeeping")
        history = type(store.history)(line, store.statements)
        await history.prune(KEPT)
        clock.advance(days=5)
        job = await desk.running()
        with reading(database_url) as reader:
            started = time.monotonic()
            pruned, finished = await asyncio.gather(history.prune(KEPT), _finish_all(desk, store))
            took = time.monotonic() - started
            assert pruned == Pruned([], [])
            assert finished < 1.0
            assert took < 2.0  # eight times 2 s without a limit
            reader.rollback()
        clock.advance(hours=1)
        pruned = await history.prune(KEPT)
        assert day_name("history_cancelled", TODAY) in pruned.dropped
        assert pruned.created
        assert events.of(DatabaseLost) == events.of(StatementTimedOut) == []
        assert await desk.state(job.id) == "running"
        await line.close()


async def _finish_all(desk: Desk, store: Store) -> float:
    """How long the slowest of some finishes took."""
    slowest = 0.0
    for _ in range(20):
        job = await desk.running()
        started = time.monotonic()
        await store.jobs.complete(job.holder, [job], [None])
        slowest = max(slowest, time.monotonic() - started)
    return slowest


@pytest.mark.asyncio
async def test_workers_starting_on_a_new_database_do_not_use_the_catch_all_partition(
    database_url: str,
) -> None:
    apps = [App(database_url) for _ in range(5)]
    seen = [Watched(app) for app in apps]
    for app in apps:

        @app.every("1s", name="tick")
        async def tick() -> None: ...

    workers = [app.worker() for app in apps]
    await asyncio.gather(*(worker.start() for worker in workers))
    with psycopg.connect(database_url, autocommit=True) as connection:
        for _ in range(200):
            row = connection.execute("select count(*) from trueup.ticks").fetchone()
            if row is not None and row[0] >= 2:
                break
            await asyncio.sleep(0.05)
        strays = connection.execute(
            "select (select count(*) from trueup.ticks_rest), (select count(*) from trueup.history_done_rest)"
        )
        assert strays.fetchone() == (0, 0)
        assert row is not None
        assert row[0] >= 2
    for worker in workers:
        await worker.stop(timedelta())
    for app in apps:
        await app.close()
    created = [event.partition for each in seen for event in each.of(HistoryDayCreated)]
    assert len(created) == len(set(created))


@pytest.mark.asyncio
async def test_a_day_with_rows_in_the_catch_all_is_not_tried_and_logs_no_error(desk: Desk, store: Store) -> None:
    await finish(desk)
    await store.history.prune(KEPT)
    before = await desk.scalar("select xact_rollback from pg_stat_database where datname = current_database()")
    for _ in range(3):
        assert await store.history.prune(KEPT) == Pruned([], [])
    after = await desk.scalar("select xact_rollback from pg_stat_database where datname = current_database()")
    assert after == before
