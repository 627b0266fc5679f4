"""The lock in Redis: whose it is, what happens without it, and what it refuses afterwards."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from redis import Redis

from apps.pulse.plan import BRIEFING_GENERATION, HEALTH_CHECK, JOBS
from apps.pulse.runs import Run
from apps.servers.valkey import Valkey
from tests.apps.pulse.office import Office
from tests.apps.pulse.test_checking import checked, waiting_for
from tests.support.watching import Watched
from trueup import NotAcquired, Tick
from trueup.events import RunPostponed
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio


async def ticks(office: Office, name: str) -> list[tuple[str, str | None]]:
    shown = await office.app.schedules.show(name)
    return [(tick["outcome"], tick["reason"]) for tick in reversed(shown["ticks"])]


async def test_while_a_job_runs_its_key_is_there_and_afterwards_it_is_not(office: Office, database_url: str) -> None:
    await office.projects(1)
    async with await psycopg.AsyncConnection.connect(database_url) as blocker, asyncio.TaskGroup() as group:
        await blocker.execute("lock table tasks")
        running = group.create_task(office.run(HEALTH_CHECK))
        await waiting_for(blocker, "tasks", 1)
        assert office.redis.keys() == ["cron:health-check"]
        with Redis.from_url(office.redis.url) as client:
            assert 40_000 < client.pttl("cron:health-check") <= 60_000, "a minute, not fourteen"
        await blocker.rollback()
        await running
    assert office.redis.keys() == []


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
async def test_a_job_that_runs_elsewhere_is_skipped_with_a_word_at_debug_level(
    office: Office, caplog: pytest.LogCaptureFixture, job: Any
) -> None:
    """Elsewhere: whoever set the key, also a program that knows nothing of trueup."""
    with Redis.from_url(office.redis.url) as client, caplog.at_level(logging.DEBUG, "pulse"):
        client.set(job.lock_key, "somebody else", px=60_000)
        await office.run(job)
        assert client.get(job.lock_key) == b"somebody else", "only its owner gives it back"
    assert [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "pulse"] == [
        ("DEBUG", "already running on another instance, skipping")
    ]
    assert await ticks(office, job.name) == [("skipped", "another instance is handling it")]
    assert await office.all("select * from runs") == []


async def test_without_redis_nothing_runs_and_when_it_is_back_what_was_due_does(office: Office) -> None:
    events = Watched(office.app)
    await office.projects(3)
    office.redis.stop()
    for _ in range(3):
        await office.worker.run_pending()
        office.clock.advance(seconds=5)
    await office.run(HEALTH_CHECK)
    assert "Redis is unreachable" in events.of(RunPostponed)[-1].reason
    assert await office.all("select * from runs") == []
    await asyncio.to_thread(office.redis.start)
    office.clock.advance(seconds=5)
    await office.worker.run_pending()
    assert len(await checked(office)) == 3
    assert [row["attempt"] for row in await office.all("select attempt from runs")] == [1], "waiting costs none"
    assert [outcome for outcome, _ in await ticks(office, "health-check")] == ["fired"]


async def test_without_redis_it_runs_all_the_same_when_told_to(
    database_url: str, clock: ManualClock, redis: Valkey
) -> None:
    office = Office(database_url, clock, redis, PULSE_WITHOUT_REDIS="run")
    await office.begin()
    await office.projects(3)
    redis.stop()
    await office.run(HEALTH_CHECK)
    assert len(await checked(office)) == 3
    await office.end()


async def test_once_somebody_else_has_the_lock_nothing_more_is_written(office: Office, database_url: str) -> None:
    """Redis forgets the lock while five projects are being looked at, and somebody else takes it."""
    await office.projects(20)
    async with await psycopg.AsyncConnection.connect(database_url) as blocker, asyncio.TaskGroup() as group:
        await blocker.execute("lock table tasks")
        running = group.create_task(office.run(HEALTH_CHECK))
        await waiting_for(blocker, "tasks", 5)
        office.redis.flush()
        async with office.app.lease("another", key="cron:health-check", backend="redis") as other:
            await blocker.rollback()
            await running
            assert other.held()
        (run,) = await office.all("select term, ended_at from runs")
        assert run["term"] == other.term - 1
        assert run["ended_at"] is None, "not even that it has ended"
    assert await checked(office) == []
    assert await office.one("select count(*)::int from projects where last_health_check is not null") == 0
    assert await office.one("select sum(health_failures)::int from projects") == 0
    office.clock.advance(seconds=60)
    await office.worker.run_pending()
    assert len(await checked(office)) == 20, "the same tick, resumed"
    assert await office.one("select count(distinct tick)::int from runs") == 1


async def test_a_transaction_of_a_process_that_was_stopped_is_ended_by_the_server(office: Office) -> None:
    """Or nobody could have the lock for as long as it is stopped."""
    tick = Tick("health-check", office.clock.now(), timedelta(), 1)
    async with office.app.lease("x", key="cron:health-check", backend="redis") as lease:
        run = Run(office.app, HEALTH_CHECK, tick, lease, timedelta(milliseconds=100))
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            async with run.transaction() as tx:
                await asyncio.sleep(0.5)  # the time itself is what counts
                await tx.execute("select 1")


async def test_while_a_run_is_inside_a_transaction_nobody_can_take_its_lock_over(
    office: Office, database_url: str
) -> None:
    """Also when Redis has forgotten it: that transaction is fenced."""
    await office.do("insert into users (name) select 'u' || n from generate_series(1, 250) as n")
    async with await psycopg.AsyncConnection.connect(database_url) as blocker, asyncio.TaskGroup() as group:
        await blocker.execute("lock table runs")
        running = group.create_task(office.run(BRIEFING_GENERATION))
        await waiting_for(blocker, "runs", 1)
        office.redis.flush()
        with pytest.raises(NotAcquired):
            async with office.app.lease("another", key="cron:briefing-generation", backend="redis"):
                pass
        await blocker.rollback()
        await running
    assert await office.one("select count(*)::int from briefings") == 250
    assert await office.one("select count(*)::int from runs where ended_at is not null") == 1
