"""Reports: all that are due, each once, and the next one on its day."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from apps.pulse.plan import SCHEDULED_REPORT
from tests.apps.pulse.office import Office
from tests.apps.pulse.test_checking import waiting_for
from tests.support.matrix import count

pytestmark = pytest.mark.asyncio


async def next_runs(office: Office) -> list[str]:
    return [
        f"{row['next_run']:%Y-%m-%d}" for row in await office.all("select next_run from report_schedules order by id")
    ]


async def test_all_reports_are_made_in_one_run_three_at_a_time(office: Office, database_url: str) -> None:
    wanted = count(60, proof=120)  # more than the fifty that are claimed at a time
    projects = await office.projects(20)
    for number in range(wanted):
        await office.report("DAILY", office.clock.now(), projects[number % 20])
    async with await psycopg.AsyncConnection.connect(database_url) as blocker, asyncio.TaskGroup() as group:
        await blocker.execute("lock table tasks")
        running = group.create_task(office.run(SCHEDULED_REPORT))
        await waiting_for(blocker, "tasks", 3)
        await blocker.rollback()
        await running
    assert await office.one("select count(*)::int from reports") == wanted
    assert (
        await office.one("select count(*)::int from report_schedules where next_run > %(now)s", now=office.clock.now())
        == wanted
    )
    assert await office.one("select succeeded from runs") == wanted
    await office.run(SCHEDULED_REPORT)
    assert await office.one("select count(*)::int from reports") == wanted, "each once"


@pytest.mark.parametrize(
    ("frequency", "days"),
    [
        ("DAILY", ["2026-02-01", "2026-02-02", "2026-02-03"]),
        ("WEEKLY", ["2026-02-07", "2026-02-14", "2026-02-21"]),
        ("BIWEEKLY", ["2026-02-14", "2026-02-28", "2026-03-14"]),
        ("MONTHLY", ["2026-02-28", "2026-03-31", "2026-04-30"]),
    ],
)
async def test_the_next_report_is_due_on_its_day(office: Office, frequency: str, days: list[str]) -> None:
    due = datetime(2026, 1, 31, tzinfo=UTC)
    await office.report(frequency, due)
    for day in days:
        moved = (due - office.clock.now()).total_seconds()
        office.clock.advance(seconds=moved + 1)
        await office.run(SCHEDULED_REPORT)
        assert await next_runs(office) == [day]
        due = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    assert await office.one("select count(*)::int from reports") == 3


async def test_a_report_that_is_not_due_or_not_wanted_is_not_made(office: Office) -> None:
    await office.report("DAILY", office.clock.now() + timedelta(seconds=1))
    gone = await office.report("DAILY", office.clock.now())
    await office.do("update report_schedules set active = false where id = %(id)s", id=gone)
    await office.run(SCHEDULED_REPORT)
    assert await office.one("select count(*)::int from reports") == 0


async def test_one_report_makes_up_for_those_that_were_missed(office: Office) -> None:
    await office.report("DAILY", office.clock.now() - timedelta(days=3, hours=12))
    await office.run(SCHEDULED_REPORT)
    assert await office.one("select content ->> 'missed' from reports") == "3"
    assert await next_runs(office) == [f"{office.clock.now() + timedelta(hours=12):%Y-%m-%d}"]


async def test_a_report_that_fails_is_told_of_stays_due_and_stops_no_other(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    (bad,) = await office.projects(1)
    await office.spoil(bad)
    failing = await office.report("DAILY", office.clock.now() - timedelta(days=1), bad)
    for _ in range(5):
        await office.report("DAILY", office.clock.now())
    with caplog.at_level(logging.ERROR, "pulse"):
        await office.run(SCHEDULED_REPORT)
    (failure,) = caplog.records
    assert failure.getMessage() == "Report failed"
    assert failure.__dict__["report_schedule_id"] == failing
    (row,) = await office.all(
        "select failures, last_error from report_schedules where next_run <= %(now)s", now=office.clock.now()
    )
    assert row["failures"] == 1
    assert row["last_error"].startswith("UnusableFacts: ")
    assert await office.one("select count(*)::int from reports") == 5
    await office.do("delete from members")
    office.clock.advance(minutes=1)
    await office.run(SCHEDULED_REPORT)
    assert await office.one("select count(*)::int from reports where schedule_id = %(id)s", id=failing) == 1
    (row,) = await office.all("select failures, last_error from report_schedules where id = %(id)s", id=failing)
    assert row == {"failures": 0, "last_error": None}


async def test_a_report_says_what_happened_since_the_one_before(office: Office) -> None:
    (project,) = await office.projects(1)
    await office.do(
        "insert into tasks (project_id, title, status, done_at) values"
        " (%(p)s, 'yesterday', 'DONE', %(now)s - interval '20 hours'), (%(p)s, 'last week', 'DONE', %(now)s - interval '7 days'),"
        " (%(p)s, 'open', 'OPEN', null), (%(p)s, 'blocked', 'BLOCKED', null)",
        p=project,
        now=office.clock.now(),
    )
    await office.report("DAILY", office.clock.now(), project)
    await office.run(SCHEDULED_REPORT)
    content = await office.one("select content from reports")
    assert {key: content[key] for key in ("name", "done", "open", "blocked", "alerts")} == {
        "name": "p1",
        "done": 1,
        "open": 2,
        "blocked": 1,
        "alerts": 0,
    }
