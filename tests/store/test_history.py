from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.desk import Desk
from trueup.store.history import AHEAD, Kept, Pruned, day_name, day_of, plan
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
    pruned = await store.history.prune(KEPT)
    assert len(pruned.created) == (len(STATES) + 1) * (AHEAD + 1)
    assert {name for name in pruned.created if name.startswith("ticks")} == {
        day_name("ticks", day) for day in days(0, AHEAD)
    }
    assert pruned.dropped == []
    for state in STATES:
        assert await partitions(desk, state) == {*days(0, AHEAD), None}
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
        assert await partitions(desk, state) == {*days(0, AHEAD), None}


@pytest.mark.asyncio
async def test_a_pruner_leaves_a_locked_day_for_the_next_pass(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.history.prune(KEPT)
    clock.advance(days=5)
    async with store.pool.transaction() as connection:
        await connection.execute(f"select from trueup.{day_name('history_done', TODAY)}".encode())
        first = await store.history.prune(KEPT)
        assert day_name("history_done", TODAY) not in first.dropped
        assert day_name("history_cancelled", TODAY) in first.dropped, "the others are not held up"
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
    await store.history.prune(KEPT)
    assert await desk.scalar("select array_agg(started_at) from trueup.sweeps") == [clock.now() - timedelta(hours=1)]
