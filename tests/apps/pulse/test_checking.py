"""Health checks: which projects, in which order, how many at a time, and what becomes of those that fail."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from apps.pulse import runs
from apps.pulse.checking import RECONCILER, given_up
from apps.pulse.plan import HEALTH_CHECK
from apps.pulse.projects import Project
from apps.servers.valkey import Valkey
from tests.apps.pulse.office import Office
from tests.support.matrix import count
from trueup import Failed, Stay
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio


async def checked(office: Office) -> list[int]:
    """Whose checks were written, in that order."""
    return [row["project_id"] for row in await office.all("select project_id from health_checks order by id")]


async def test_all_stale_projects_are_checked_in_one_run_five_at_a_time(office: Office, database_url: str) -> None:
    """The table of tasks is locked for a while: everybody who checks waits there, and can be counted."""
    number = count(120, proof=250)  # more than the hundred that are claimed at a time
    await office.projects(number)
    async with await psycopg.AsyncConnection.connect(database_url) as blocker, asyncio.TaskGroup() as group:
        await blocker.execute("lock table tasks")
        running = group.create_task(office.run(HEALTH_CHECK))
        await waiting_for(blocker, "tasks", 5)
        assert await office.one("select count(*)::int from health_checks") == 0
        await blocker.rollback()
        await running
    assert await office.one("select count(distinct project_id)::int from health_checks") == number
    assert await office.one("select count(*)::int from health_checks") == number
    run = await office.all("select succeeded, failed, ended_at is not null as ended from runs")
    assert run == [{"succeeded": number, "failed": 0, "ended": True}]


async def waiting_for(connection: Any, table: str, number: int) -> None:
    """Until so many wait for the table, and nobody else comes although there is time."""
    query = "select count(distinct pid) from pg_locks where relation = %s::regclass and not granted"
    counts = []

    async def look() -> int:
        ((found,),) = await (await connection.execute(query, [table])).fetchall()
        counts.append(found)
        return int(found)

    async with asyncio.timeout(15):
        while await look() < number:
            await asyncio.sleep(0.01)
    for _ in range(20):  # each a round trip; the next claim or handler would have come by then
        await look()
        await asyncio.sleep(0.01)
    assert max(counts) == number


async def test_those_never_checked_come_first_and_then_the_one_that_has_waited_longest(office: Office) -> None:
    now = office.clock.now()
    hour_ago = await office.projects(1, now - timedelta(hours=1))
    day_ago = await office.projects(1, now - timedelta(days=1))
    never = await office.projects(1)
    would = await office.app.reconcilers.dry_run(RECONCILER)
    assert [int(row["key"]) for row in would.rows] == [*never, *day_ago, *hour_ago]
    await office.run(HEALTH_CHECK)
    assert sorted(await checked(office)) == sorted([*never, *day_ago, *hour_ago])


async def test_a_check_of_an_active_project_is_stale_after_ten_minutes(office: Office) -> None:
    ten_minutes_ago = office.clock.now() - timedelta(minutes=10)
    await office.projects(1, ten_minutes_ago)
    stale = await office.projects(1, ten_minutes_ago - timedelta(microseconds=1))
    for status in ("PAUSED", "DONE"):
        (project,) = await office.projects(1)
        await office.do("update projects set status = %(status)s where id = %(id)s", status=status, id=project)
    await office.run(HEALTH_CHECK)
    assert await checked(office) == stale


async def test_projects_that_always_fail_neither_block_nor_hide_nor_are_forgotten(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    """They are the first in every run, and more of them than there are places."""
    bad = await office.projects(12)
    for project in bad:
        await office.spoil(project)
    good = await office.projects(30)
    for run in range(1, 4):
        with caplog.at_level(logging.ERROR, "pulse"):
            await office.run(HEALTH_CHECK)
        office.clock.advance(minutes=15)
        failed = await office.all(
            "select id, health_error, health_score from projects where health_failures = %(run)s order by id", run=run
        )
        assert [row["id"] for row in failed] == bad
        assert failed[0]["health_error"].startswith("UnusableFacts: weekly hours that cannot be")
        assert failed[0]["health_score"] is None
        assert sorted(await checked(office)) == sorted(good * run)
    assert len(caplog.records) == 36
    assert caplog.records[0].getMessage() == "Health check failed"
    assert caplog.records[0].__dict__["project_id"] in bad
    # Other jobs are due every 15 minutes, too; this is about the runs of one.
    runs = await office.all("select * from runs where job = %(job)s order by tick", job=HEALTH_CHECK.name)
    outcomes = [(row["succeeded"], row["failed"]) for row in runs]
    assert outcomes == [(30, 12)] * 3


async def test_a_project_that_is_well_again_is_checked_again(office: Office) -> None:
    (project,) = await office.projects(1)
    await office.spoil(project)
    await office.run(HEALTH_CHECK)
    await office.do("delete from members")
    office.clock.advance(minutes=15)
    await office.run(HEALTH_CHECK)
    ((row),) = await office.all("select health_error, health_failures, health_level from projects")
    assert row == {"health_error": None, "health_failures": 0, "health_level": "GOOD"}


async def test_the_log_says_it_in_these_words_and_in_fields(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    await office.spoil((await office.projects(25))[0])
    with caplog.at_level(logging.INFO, "pulse"):
        await office.run(HEALTH_CHECK)
    starting, found, completed = [
        record for record in caplog.records if record.name == "pulse" and record.levelname == "INFO"
    ]
    assert starting.getMessage() == "[HealthCheckCron] Starting scheduled health checks"
    assert found.getMessage() == "Found 25 active projects needing health checks"
    duration = completed.__dict__["duration_ms"]
    assert completed.getMessage() == f"Scheduled health checks completed: 24 succeeded, 1 failed, duration={duration}ms"
    assert (found.__dict__["projects"], completed.__dict__["succeeded"], completed.__dict__["failed"]) == (25, 24, 1)
    assert completed.__dict__["job"] == "health-check"
    assert completed.__dict__["attempt"] == 1
    assert completed.__dict__["term"] >= 1


async def test_an_empty_table_is_a_run_like_any_other(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pulse"):
        await office.run(HEALTH_CHECK)
    assert "Found 0 active projects needing health checks" in caplog.messages
    assert await office.one("select succeeded from runs") == 0


async def test_a_project_that_somebody_has_locked_is_left_for_the_next_run_and_told_of(
    database_url: str, redis: Valkey, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    office = Office(database_url, clock, redis, PULSE_LOCK_TTL="1s")
    await office.begin()
    locked, free = await office.projects(2)
    async with office.app.transaction() as tx:
        await tx.execute("select from projects where id = %s for update", [locked])
        await office.run(HEALTH_CHECK)
    assert await checked(office) == [free]
    (warning,) = [record for record in caplog.records if record.getMessage() == "Left for the next run"]
    assert warning.__dict__["left"] == 1
    await office.run(HEALTH_CHECK)
    assert await checked(office) == [free, locked]
    await office.end()


async def test_a_check_that_killed_its_process_over_and_over_counts_as_failed() -> None:
    project = Project(7, "p", None, None, health_failures=2)
    failed = Failed(RuntimeError("the process that held it died"), 4, 4, None)
    assert given_up(project, failed) == Stay(
        health_error="RuntimeError: the process that held it died", health_failures=3
    )


async def test_somebody_is_alerted_when_a_project_gets_worse_and_not_when_it_stays_so(office: Office) -> None:
    (project,) = await office.projects(1)
    await office.do(
        "insert into tasks (project_id, title, status, due_at, done_at) select %(id)s, 't', 'DONE', %(now)s, %(now)s"
        "  from generate_series(1, 4)",
        id=project,
        now=office.clock.now() - timedelta(hours=1),
    )
    levels = []
    for change in (
        "select",
        "insert into tasks (project_id, title, status) select id, 'b', 'BLOCKED' from projects",
        "select",
        "update tasks set due_at = done_at - interval '1 day' where status = 'DONE'",
        "delete from tasks",
    ):
        await office.do(change)
        await office.run(HEALTH_CHECK)
        office.clock.advance(minutes=15)
        levels.append(await office.one("select health_level from projects"))
    assert levels == ["GOOD", "WARNING", "WARNING", "CRITICAL", "GOOD"]
    alerts = await office.all("select level_before, level_after from alerts order by health_check_id")
    assert [tuple(row.values()) for row in alerts] == [("GOOD", "WARNING"), ("WARNING", "CRITICAL")]
    trends = [row["trend"] for row in await office.all("select trend from health_checks order by id")]
    assert trends == ["STABLE", "DECLINING", "STABLE", "DECLINING", "IMPROVING"]


async def test_the_facts_of_a_project_are_counted_as_they_are_said(office: Office) -> None:
    (project, other) = await office.projects(2)
    now = office.clock.now()
    await office.do(
        "insert into tasks (project_id, title, status, due_at, done_at) values"
        " (%(p)s, 'in time', 'DONE', %(now)s - interval '2 days', %(now)s - interval '3 days'),"
        " (%(p)s, 'late', 'DONE', %(now)s - interval '9 days', %(now)s - interval '8 days'),"
        " (%(p)s, 'overdue', 'OPEN', %(now)s - interval '1 day', null),"
        " (%(p)s, 'blocked', 'BLOCKED', %(now)s + interval '47 hours', null),"
        " (%(p)s, 'long ago', 'DONE', %(now)s - interval '60 days', %(now)s - interval '60 days'),"
        " (%(o)s, 'of another', 'BLOCKED', null, null)",
        p=project,
        o=other,
        now=now,
    )
    await office.do(
        "with u as (insert into users (name) values ('a'), ('b') returning id)"
        " insert into members select p, id, 22 from u, unnest(%(both)s::bigint[]) as p",
        both=[project, other],
    )
    await office.run(HEALTH_CHECK)
    (check,) = await office.all("select * from health_checks where project_id = %(id)s", id=project)
    assert check["parts"] == pytest.approx({"on_time": 1 / 3, "blocked": 1 / 2, "capacity": 0.9, "velocity": 1.0})
    assert check["score"] == 65.0
    assert check["risks"] == ["DEADLINE_WARNING", "CAPACITY_OVERLOAD"]


@pytest.mark.slow
async def test_a_slow_run_ends_at_its_deadline_and_releases_the_rest(
    office: Office, database_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no failure: no attempt is spent, no project is blamed, and the next run begins with the same projects."""
    monkeypatch.setattr(runs, "last_start", lambda schedule: timedelta(seconds=1))  # of 14 minutes
    monkeypatch.setattr(runs, "LAST_MOMENT", 1.5 / (14 * 60))
    await office.projects(8)
    async with await psycopg.AsyncConnection.connect(database_url) as blocker:
        await blocker.execute("lock table tasks")
        with caplog.at_level(logging.WARNING, "pulse"):
            await asyncio.wait_for(office.run(HEALTH_CHECK), 60)
    (run,) = await office.all("select attempt, succeeded, failed, ended_at - began_at as took from runs")
    assert (run["attempt"], run["succeeded"], run["failed"]) == (1, 0, 0)
    assert run["took"] > timedelta(seconds=1), "it has tried"
    assert [record.message for record in caplog.records] == ["Left for the next run"]
    untouched = {"health_error": None, "health_failures": 0, "last_health_check": None}
    assert await office.all("select health_error, health_failures, last_health_check from projects") == [untouched] * 8
    office.clock.advance(minutes=1)
    monkeypatch.undo()
    await office.run(HEALTH_CHECK)
    assert len(await checked(office)) == 8
