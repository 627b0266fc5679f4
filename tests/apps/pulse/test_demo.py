"""The demo, in short: it ends by itself, and its books balance; and books that do not are found out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apps.pulse.books import balance
from apps.pulse.plan import JOBS
from apps.pulse.seed import Size, fill
from apps.servers.valkey import Valkey
from tests.apps.pulse.office import Office
from tests.support import warm
from tests.support.processes import ROOT
from trueup.testing.clock import ManualClock


@pytest.mark.proof(beside="test_books_that_do_not_balance_are_found_out")
@pytest.mark.slow
def test_the_demo_proves_that_the_books_balance(database_url: str) -> None:
    demo = ("apps.pulse", "demo", "--seconds", "3", "--workers", "2")
    ended = warm.run(*demo, cwd=ROOT, env={"TRUEUP_DATABASE_URL": database_url}, timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    books, check = ended.stdout.splitlines()[-2:]
    assert books.startswith("The books balance: ")
    assert check.startswith("An independent check of tables, Redis and receiver agrees")
    assert "answers 503" in ended.stdout
    assert "is killed while it holds cron:health-check" in ended.stdout
    assert "Redis is restarted" in ended.stdout


@pytest.mark.asyncio
async def test_books_that_do_not_balance_are_found_out(database_url: str, redis: Valkey) -> None:
    office = Office(database_url, ManualClock(datetime.now(UTC)), redis)  # the books are kept by the database's clock
    await office.begin()
    async with office.app.transaction() as tx:
        await fill(tx, Size(projects=7, reports=5, users=3))
    for job in JOBS:
        await office.run(job)
    books = await balance(office.app, redis.keys())
    assert books.line.startswith("The books balance: 5 ticks fired")
    for spoiled, what in (
        ("insert into projects (name) values ('new')", "1 projects were never checked"),
        (
            "insert into health_checks (project_id, tick, term, score, level, trend, risks, parts, began_at)"
            " select project_id, tick, term, score, level, trend, risks, parts, began_at from health_checks limit 1",
            "projects checked twice",
        ),
        ("delete from reports where schedule_id = (select min(schedule_id) from reports)", "reports, although"),
        (
            "insert into runs (job, tick, term, attempt, instance, began_at, ended_at)"
            " select job, tick, term + 1, 2, instance, began_at, ended_at from runs where job = 'health-check'",
            "ticks run twice",
        ),
        (
            "insert into messages (conversation_id, body, created_at) select id, 'x', '2020-01-01' from conversations limit 1",
            "old messages",
        ),
        ("delete from runs where job = 'scheduled-report'", "scheduled-report: 1 ticks were fired and not run"),
    ):
        await office.do(spoiled)
        books = await balance(office.app, redis.keys())
        assert any(what in each for each in books.wrong), (what, books.wrong)
    assert "locks are left" in (await balance(office.app, ["cron:health-check"])).line
    await office.end()
