"""The checks: each is provoked once on a real database, and a healthy one gives none; Python and the SQL view say the same."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.support.database import TestServer
from trueup import App, ConfigError
from trueup.config import CHECKS, load_settings
from trueup.operate.checks import ADVICE, Finding, Report, judge
from trueup.store.health import Measured
from trueup.testing.worker import ManualWorker

JOB = """
insert into trueup.jobs (kind, queue, lane, priority, run_at, rank, args, max_attempts)
select '{kind}', '{queue}', '{queue}', {priority}, now() - interval '{age}', now(), '{{}}', 3
"""
DEAD = """
insert into trueup.history (id, kind, queue, lane, key, state, priority, run_at, args, attempt, max_attempts, crashes, term, enqueued_at, finished_at, errors)
select n, 'send', 'default', 'default', '', 'dead', 0, now(), '{{}}', 1, 1, 0, 1, now(), now() - interval '{age}', '[]' from generate_series(1, {count}) as n
"""
ROW = """
insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)
select 'settle', n::text, '{state}', now() - interval '{age}', 1, 1, now(), now() from generate_series(1, {count}) as n
"""
SCHEDULE = "update trueup.schedules set next_due_at = now() - interval '{age}' where name = 'nightly'"
SCAN = "insert into trueup.scans (name, due_at, failures, error) values ('objects', now(), 2, 'boom')"
REFUSAL = """
insert into trueup.schedule_refusals (name, version, error, refusals, refused_at, retry_at)
select name, version, 'value too long', 1, now(), now() from trueup.schedules
"""
HELD = """;
update trueup.jobs set state = 'running', holder = {holder}, term = 1, claimed_at = now() - interval '{age}'
"""
DIED = """
with died as (select (jsonb_populate_record(w, jsonb_build_object('holder', gen_random_uuid(), 'lease_until', now() - interval '{age}'))).* from trueup.workers as w)
insert into trueup.workers select * from died;
"""
JOB_NOW = JOB.format(kind="send", queue="default", priority=0, age="0 s")
OF_THE_DEAD = "(select holder from trueup.workers where lease_until < now())"
OF_THE_LIVING = "(select holder from trueup.workers where lease_until > now())"
PROVOKED = {
    "a killed fleet": (
        "update trueup.workers set lease_until = now() - interval '1 s'",
        "workers",
        "no worker is alive",
    ),
    "a fleet that left": ("delete from trueup.workers", "workers", "no worker is alive"),
    "late ticks": (SCHEDULE.format(age="6 min"), "ticks", "nightly"),
    "a refused tick": (REFUSAL, "schedules", "nightly: its tick is refused: value too long"),
    "a schedule ahead of the clock": (
        "update trueup.schedules set decided_until = now() + interval '1 d'",
        "schedules",
        "nightly: it is ahead of the clock",
    ),
    "a kind nobody knows": (
        JOB.format(kind="gone", queue="default", priority=0, age="2 min"),
        "kinds",
        "gone (queue default",
    ),
    "a queue nobody serves": (
        JOB.format(kind="send", queue="other", priority=7, age="2 min"),
        "kinds",
        "send (queue other",
    ),
    "a job that is not taken over": (
        DIED.format(age="125 s") + JOB_NOW + HELD.format(holder=OF_THE_DEAD, age="1 h"),
        "stranded_jobs",
        "(the lease of its worker ended 2m5s ago)",
    ),
    "a job of a worker that has no row": (
        JOB_NOW + HELD.format(holder="gen_random_uuid()", age="2 min"),
        "stranded_jobs",
        "(the lease of its worker ended 2m ago)",
    ),
    "a sweep that fails": (
        "update trueup.reconcilers set last_error = 'no such column', failures = 4, last_failed_at = now()",
        "sweeps",
        "settle (4 in a row): no such column",
    ),
    "a scan that fails": (SCAN, "sweeps", "scan objects (2 in a row): boom"),
    "rows that are overdue": (
        ROW.format(state="resting", age="1 h", count=3),
        "overdue_rows",
        "settle is behind by 1h",
    ),
    "jobs that are overdue": (
        JOB.format(kind="send", queue="default", priority=-3, age="2 h"),
        "overdue_jobs",
        "send waits in queue default for 2h",
    ),
    "an open breaker": (
        "update trueup.reconcilers set paused_until = now() + interval '1 min', note = 'the provider is down'",
        "breakers",
        "settle until",
    ),
    "an open breaker of one key": (
        "insert into trueup.reconciler_pauses values ('settle', 'tenant 7', now() + interval '1 min', 1, 'down')",
        "breakers",
        "settle for tenant 7 until",
    ),
    "rows in quarantine": (ROW.format(state="quarantined", age="0 s", count=2), "quarantine", "2 of settle"),
    "dead letters": (DEAD.format(age="10 min", count=3), "dead_letters", "3 send"),
}
PAUSE = "insert into trueup.pauses values ('{what}', '{name}', now(), 'ada', 'the provider is down'); "
OVERDUE = JOB.format(kind="send", queue="default", priority=0, age="2 h")
# What resembles a problem and is none.
HARMLESS = {
    "a job that will be taken over in a moment": DIED.format(age="15 s")
    + JOB_NOW
    + HELD.format(holder=OF_THE_DEAD, age="1 h"),
    "a job that runs for hours": JOB_NOW + HELD.format(holder=OF_THE_LIVING, age="3 h"),
    "a worker that died with nothing in hand": DIED.format(age="1 h"),
    "a tick that is a little late": SCHEDULE.format(age="1 min"),
    "a paused schedule that is late": SCHEDULE.format(age="1 d") + "; update trueup.schedules set state = 'paused'",
    "an unknown kind that has only just come": JOB.format(kind="gone", queue="default", priority=0, age="5 s"),
    "an unknown kind that is due tomorrow": JOB.format(kind="gone", queue="default", priority=0, age="-1 d"),
    "a known kind that waits a little": JOB.format(kind="send", queue="default", priority=0, age="2 min"),
    "overdue jobs of a paused queue": PAUSE.format(what="queue", name="default") + OVERDUE,
    "overdue jobs of a paused kind": PAUSE.format(what="kind", name="send") + OVERDUE,
    "a paused kind nobody knows": PAUSE.format(what="kind", name="gone")
    + JOB.format(kind="gone", queue="default", priority=0, age="2 min"),
    "a paused queue nobody serves": PAUSE.format(what="queue", name="other")
    + JOB.format(kind="send", queue="other", priority=0, age="2 min"),
    "overdue jobs in the lane of a paused kind": PAUSE.format(what="kind", name="send")
    + OVERDUE.replace("'default', 0", "'@send', 0"),
    "overdue jobs of a paused queue in the lane of their kind": PAUSE.format(what="queue", name="default")
    + OVERDUE.replace("'default', 0", "'@send', 0"),
    "a reconciler that a person paused": "update trueup.reconcilers set state = 'paused', last_error = 'old'",
    "the error of a reconciler that is gone from the code": (
        "insert into trueup.reconcilers (name, place, declared, declared_at, last_error) values ('gone', 't', '{}', now(), 'x')"
    ),
    "rows of a breaker that was open and is not": "update trueup.reconcilers set paused_until = now() - interval '1 s'",
    "rows of a reconciler that runs on demand": (
        "update trueup.reconcilers set declared = '{}'; " + ROW.format(state="resting", age="1 d", count=1)
    ),
    "discarded rows": ROW.format(state="discarded", age="1 d", count=1),
    "dead letters of yesterday": DEAD.format(age="1 d", count=1),
}


async def declare(url: str) -> None:
    """A worker with a kind, a schedule and a reconciler, that lives for the next hour."""
    async with App(url) as app:

        @app.job
        async def send() -> None: ...

        @app.cron("0 3 * * *")
        async def nightly() -> None: ...

        async with app.transaction() as connection:
            await connection.execute("create table payments (id int primary key, state text not null)")

        @app.table("payments", key="id", state="state").reconcile("open", name="settle", every="1m")
        async def settle(row: Any) -> None: ...

        worker = ManualWorker(app)
        await worker.begin()
        await worker.sweep("settle")
        await worker.end()
        async with app.transaction() as connection:
            await connection.execute("update trueup.workers set lease_until = now() + interval '1 hour'")


@pytest.fixture(scope="module")
def fleet_url(server: TestServer) -> Iterator[str]:
    with server.database() as url:
        asyncio.run(declare(url))
        yield url


@pytest.fixture
def fleet(fleet_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A healthy fleet's database, in a transaction that is rolled back."""
    with psycopg.connect(fleet_url) as connection:
        yield connection
        connection.rollback()


def checked(connection: psycopg.Connection[Any]) -> list[Measured]:
    rows = connection.execute("select name, severity, value, allowed, detail from trueup.health").fetchall()
    return [Measured(*row) for row in rows]


def test_a_healthy_fleet_has_no_findings_and_every_check_was_made(fleet_url: str) -> None:
    async def check() -> Report:
        app = App(fleet_url)
        try:
            return await app.check()
        finally:
            await app.close()

    report = asyncio.run(check())
    assert report.findings == ()
    assert tuple(each.name for each in report.measured) == CHECKS


@pytest.mark.parametrize(("statement", "check", "says"), PROVOKED.values(), ids=PROVOKED)
def test_what_is_wrong_is_found(fleet: psycopg.Connection[Any], statement: str, check: str, says: str) -> None:
    fleet.execute(statement.encode())
    (finding,) = judge(checked(fleet), {})
    assert finding.check == check
    assert says in finding.problem
    assert finding.advice == ADVICE[check]
    assert fleet.execute("select name from trueup.health where not ok").fetchall() == [(check,)]


def test_what_follows_from_a_dead_fleet_says_so_and_nothing_unknown_is_called_well(
    fleet: psycopg.Connection[Any],
) -> None:
    fleet.execute((SCHEDULE.format(age="6 min") + ";" + OVERDUE).encode())
    fleet.execute(
        "update trueup.workers set renewed_at = now() - interval '65 s', lease_until = now() - interval '35 s'"
    )
    fleet.execute("update trueup.fleet set last_alive_at = null")
    measured = checked(fleet)
    findings = judge(measured, {})
    assert [each.check for each in findings] == ["workers", "ticks", "overdue_jobs"]
    assert {each.advice for each in findings} == {ADVICE["workers"]}
    assert findings[0].problem.startswith("no worker is alive; the last sign of life was 1m5s ago (2")
    details = {each.name: each.detail for each in measured}
    assert details["kinds"] == details["stranded_jobs"] == "not known: no worker is alive"


def test_the_worst_is_named_first_an_error_once_and_a_bounded_count_as_bounded(
    fleet: psycopg.Connection[Any],
) -> None:
    error = "could not connect\n\tIs the server running?"
    for name, failures in (("settle", 4), ("ship", 41)):
        fleet.execute(
            "insert into trueup.scans (name, due_at, failures, error) values (%s, now(), %s, %s)",
            (name, failures, error),
        )
    fleet.execute(SCAN.encode())
    kinds = DEAD.replace("'send'", "case when n < 3 then 'a' else 'send' end")
    fleet.execute(kinds.format(age="10 min", count=10_005).encode())
    problems = {each.check: each.problem for each in judge(checked(fleet), {})}
    alike = "scan ship (41 in a row), scan settle (4 in a row): could not connect Is the server running?"
    assert problems["sweeps"] == f"{alike}; scan objects (2 in a row): boom"
    assert re.fullmatch(r"died in the last hour: (9,99\d|10,000) send(, \d a)?, and more", problems["dead_letters"])


@pytest.mark.parametrize("statement", HARMLESS.values(), ids=HARMLESS)
def test_what_is_harmless_is_not_reported(fleet: psycopg.Connection[Any], statement: str) -> None:
    fleet.execute(statement.encode())
    assert judge(checked(fleet), {}) == ()


@pytest.mark.parametrize(("what", "name"), [("queue", "other"), ("kind", "gone")])
def test_a_pause_hides_only_what_is_paused(fleet: psycopg.Connection[Any], what: str, name: str) -> None:
    """Also when far more paused jobs than a check reads are at the head of the same lane."""
    ahead = JOB.format(kind="gone", queue="other" if what == "queue" else "default", priority=0, age="3 h")
    fleet.execute(f"{PAUSE.format(what=what, name=name)}{ahead} from generate_series(1, 500)".encode())
    assert judge(checked(fleet), {}) == ()
    fleet.execute(OVERDUE.encode())
    (finding,) = judge(checked(fleet), {})
    assert (finding.check, finding.problem) == ("overdue_jobs", "send waits in queue default for 2h")


@pytest.mark.asyncio
async def test_an_empty_database_lacks_migrations_and_one_without_a_server_is_away(empty_database_url: str) -> None:
    for url, check, says in (
        (empty_database_url, "migrations", "no trueup schema"),
        ("postgresql://user:geheim@127.0.0.1:1/none", "database", "cannot connect"),
    ):
        app = App(url)
        report = await app.check()
        assert [each.check for each in report.findings] == [check]
        assert says in report.findings[0].problem
        assert "geheim" not in report.findings[0].problem
        await app.close()


def test_a_role_that_may_only_look_reads_the_view(fleet: psycopg.Connection[Any]) -> None:
    """With the grants that the page on deploying gives to such a role."""
    fleet.execute("create role looks_at_health; grant usage on schema trueup to looks_at_health")
    fleet.execute("grant select on all tables in schema trueup to looks_at_health; set local role looks_at_health")
    assert len(checked(fleet)) == len(CHECKS)


def pages_read(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("explain (analyze, buffers, format json) select * from trueup.health").fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_the_checks_read_the_beginning_of_indexes_however_much_there_is(fleet: psycopg.Connection[Any]) -> None:
    read = []
    for first in (1, 10_001, 20_001):
        numbers = f"from generate_series({first}, {first + 9_999}) as n"
        for age in ("-1 h", "1 min"):
            fleet.execute(f"{JOB.format(kind='send', queue='default', priority='n % 3', age=age)} {numbers}".encode())
        fleet.execute(
            ROW.format(state="resting", age="-1 h", count=10_000).replace("n::text", f"'{first} ' || n").encode()
        )
        fleet.execute("analyze")
        read.append(pages_read(fleet))
    assert read[-1] < 1.3 * read[0], "three times as much"


MEASURED = Measured("dead_letters", "warning", 5.0, 0.0, "5 died")


@pytest.mark.parametrize(
    ("limits", "found"),
    [({}, True), ({"dead_letters": 4.0}, True), ({"dead_letters": 5.0}, False), ({"dead_letters": None}, False)],
)
def test_a_limit_of_ones_own_replaces_the_usual_one(limits: dict[str, float | None], found: bool) -> None:
    assert bool(judge([MEASURED], limits)) == found


def test_a_check_of_a_newer_release_is_reported_too() -> None:
    (finding,) = judge([Measured("rings", "error", 1.0, 0.0, "one is lost")], {})
    assert (finding.check, finding.problem) == ("rings", "one is lost")


def test_limits_are_read_as_people_write_them() -> None:
    settings = load_settings(overrides={"check_limits": "dead_letters=100, overdue_jobs=6h,quarantine=off"}, environ={})
    assert settings.check_limits == {"dead_letters": 100.0, "overdue_jobs": 21_600.0, "quarantine": None}


@pytest.mark.parametrize(
    "written", ["dead=1", "dead_letters", "dead_letters=-1", "overdue_jobs=6", "quarantine=1,quarantine=2", "workers="]
)
def test_a_limit_that_cannot_be_meant_is_refused(written: str) -> None:
    with pytest.raises(ConfigError):
        load_settings(overrides={"check_limits": written}, environ={})


def test_a_report_is_ok_without_findings() -> None:
    assert Report(()).ok
    assert not Report((Finding("workers", "error", "none", "start one"),)).ok
