"""Real processes on a real database, with a real Redis: their clocks are wrong, they are killed, stopped and cut off."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from apps.pulse import database as tables
from apps.pulse.plan import JOBS
from apps.servers.valkey import Valkey
from tests.apps.processes import Process, Town, ask, town
from tests.support import ports
from tests.support.faketime import faketime_env
from tests.support.matrix import count
from tests.support.waiting import wait_until
from trueup import App

pytestmark = pytest.mark.slow

SOON = 30  # seconds; what is waited for takes two to five
NEVER = {job.variable: "0 0 29 2 *" for job in JOBS}  # only when asked for
QUICK = {"PULSE_LOCK_TTL": "2s", "TRUEUP_RESCUE_EVERY": "250ms"}
HEALTH, REPORTS = "health-check", "scheduled-report"
PROJECTS = count(30, proof=250)

PEAK = """
select max(n)::int from (select (select count(*) from {0} as o where o.began_at <= c.began_at and o.ended_at > c.began_at) as n
                           from {0} as c) as counted
"""


class Books:
    """What the database says."""

    def __init__(self, url: str) -> None:
        self.url = url
        asyncio.run(self._prepare())
        self.connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    async def _prepare(self) -> None:
        async with App(self.url) as app, app.transaction() as tx:
            await tables.make_tables(tx)

    def all(self, statement: str, **params: Any) -> list[dict[str, Any]]:
        cursor = self.connection.execute(statement.encode(), params)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, **params: Any) -> Any:
        (row,) = self.all(statement, **params)
        (value,) = row.values()
        return value

    def projects(self, count: int) -> None:
        self.all("insert into projects (name) select 'p' || n from generate_series(1, %(count)s) as n", count=count)

    def checked(self) -> int:
        return int(self.one("select count(*)::int from health_checks"))

    def each_once(self) -> bool:
        """Every project was checked, and none twice."""
        return bool(
            self.one(
                "select (select count(*) from projects) = count(*) and count(*) = count(distinct project_id) from health_checks"
            )
        )

    def running(self, job: str) -> list[dict[str, Any]]:
        return self.all("select * from runs where job = %(job)s and ended_at is null order by began_at", job=job)

    def trigger(self, job: str) -> None:
        """Once a worker has said what there is."""

        async def trigger() -> None:
            async with App(self.url) as app:
                await app.schedules.trigger(job)

        wait_until(
            lambda: self.all("select 1 as known from trueup.schedules where name = %(job)s", job=job),
            "it is known",
            timeout=SOON,
        )
        asyncio.run(trigger())

    def ticks(self, job: str) -> Counter[str]:
        """How many were fired, and how many skipped for which reason."""
        rows = self.all("select coalesce(reason, outcome) as what from trueup.ticks where schedule = %(job)s", job=job)
        return Counter(row["what"] for row in rows)

    def twice(self) -> list[dict[str, Any]]:
        """Ticks that were run to their end more than once."""
        return self.all("select job, tick from runs where ended_at is not null group by 1, 2 having count(*) > 1")

    def overlaps(self) -> list[dict[str, Any]]:
        """Runs of a job that began before an earlier one had ended. One that was cut off ends with the next one's term."""
        return self.all(
            "select a.job, a.tick, b.tick as other from runs as a join runs as b on b.job = a.job and b.term > a.term"
            " where b.began_at < a.ended_at"
        )

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Whoever reads the table `tasks`, which each check and each report does, waits until the block is left."""
        with psycopg.connect(self.url) as blocker:
            blocker.execute(b"lock table tasks")
            yield

    @contextmanager
    def in_the_middle(self, job: str, at_once: int) -> Iterator[None]:
        """Trigger the job, let the first ones through, and hold up those that follow until the block is left.

        Locks are granted in the order in which they were asked for: the second one comes after those that wait for the first,
        and before all others.
        """
        with psycopg.connect(self.url) as second, ThreadPoolExecutor() as threads:
            with self.held_up():
                self.trigger(job)
                self.wait_for_held_up(at_once)
                granted = threads.submit(second.execute, b"lock table tasks")
                self.wait_for_held_up(at_once + 1)
            granted.result(SOON)
            self.wait_for_held_up(at_once)
            yield

    def wait_for_held_up(self, count: int) -> None:
        waiting = "select count(distinct pid)::int from pg_locks where not granted and relation = 'tasks'::regclass"
        wait_until(lambda: self.one(waiting) >= count, f"{count} wait for the table", timeout=SOON)


@pytest.fixture
def books(database_url: str) -> Iterator[Books]:
    books = Books(database_url)
    yield books
    books.connection.close()


@pytest.fixture
def place(database_url: str, redis: Valkey, tmp_path: Path) -> Iterator[Town]:
    environment = {**NEVER, **QUICK, "TRUEUP_DATABASE_URL": database_url, "PULSE_REDIS_URL": redis.url}
    with town("apps.pulse", environment, tmp_path) as place:
        yield place


def holder(place: Town, books: Books, job: str) -> Process:
    """The process whose run is under way."""
    wait_until(lambda: books.running(job), "it runs", timeout=SOON)
    pid = int(books.running(job)[-1]["instance"].rpartition(":")[2])
    return next(process for process in place.started if process.pid == pid)


@pytest.mark.proof(
    beside="tests/apps/addresses/test_processes.py::test_instances_two_with_wrong_clocks_make_one_set_of_jobs_per_tick"
)
def test_instances_with_wrong_clocks_run_every_tick_once(place: Town, books: Books) -> None:
    books.projects(20)
    every_three_seconds = {job.variable: "*/3 * * * * *" for job in JOBS}
    for offset in ("-1h", "+1d", "+2"):
        place.start("worker", **faketime_env(offset, base={}), **every_three_seconds)
    runs_of_each = (
        "select min(n)::int from (select count(*) filter (where ended_at is not null) as n from runs group by job) as c"
    )
    wait_until(lambda: books.one("select count(distinct job)::int from runs") == 5, "all jobs have run", timeout=SOON)
    wait_until(lambda: books.one(runs_of_each) >= 2, "each job has run twice", timeout=SOON)
    for process in place.started:
        assert process.stop() == 0
    assert books.twice() == []
    assert books.overlaps() == []
    assert books.each_once()
    for job in JOBS:
        run = books.one("select count(distinct tick)::int from runs where job = %(job)s", job=job.name)
        waiting = books.one(
            "select count(*)::int from trueup.jobs where kind = %(job)s"
            " and not exists (select from runs where job = kind and tick = due_at)",
            job=job.name,
        )
        assert run + waiting == books.ticks(job.name)["fired"], "the last ones may have had to wait until the stop"

    async def audit() -> bool:
        async with App(books.url) as app:
            return (await app.schedules.audit("1h")).clean

    assert asyncio.run(audit()), "no tick is missing"


def test_after_a_crash_the_tick_is_resumed_elsewhere_without_repetition(place: Town, books: Books) -> None:
    books.projects(PROJECTS)
    for _ in range(2):
        place.start("worker")
    with books.in_the_middle(HEALTH, 5):
        first = holder(place, books, HEALTH)
        before = books.checked()
        first.kill()
    assert 5 <= before < PROJECTS, "in the middle of it"
    wait_until(
        lambda: books.one("select count(*)::int from runs where ended_at is not null") == 1, "it ends", timeout=SOON
    )
    assert books.each_once()
    cut_off, resumed = books.all("select * from runs order by term")
    assert (cut_off["attempt"], resumed["attempt"]) == (1, 2)
    assert cut_off["tick"] == resumed["tick"]
    assert cut_off["instance"] != resumed["instance"]
    assert resumed["succeeded"] == PROJECTS - before
    by_term = {
        row["term"]: row["n"] for row in books.all("select term, count(*)::int as n from health_checks group by 1")
    }
    assert by_term == {cut_off["term"]: before, resumed["term"]: PROJECTS - before}
    assert 1 < books.one(PEAK.format("health_checks")) <= 5


def test_a_holder_stopped_for_longer_than_its_lock_writes_nothing_afterwards(place: Town, books: Books) -> None:
    books.projects(PROJECTS)
    for _ in range(2):
        place.start("worker", TRUEUP_LOG_LEVEL="debug")
    with books.in_the_middle(HEALTH, 5):
        stopped = holder(place, books, HEALTH)
        stopped.send(signal.SIGSTOP)
        before = books.checked()
    wait_until(
        lambda: books.one("select count(*)::int from runs where ended_at is not null") == 1, "it ends", timeout=SOON
    )
    assert books.each_once()
    written = books.all("select id, term from health_checks order by id")
    stopped.send(signal.SIGCONT)
    wait_until(lambda: stopped.lines("worker lost its lease"), "it is awake, and knows", timeout=SOON)
    assert stopped.stop() == 0
    assert books.all("select id, term from health_checks order by id") == written
    old, new = (row["term"] for row in books.all("select term from runs order by term"))
    assert Counter(row["term"] for row in written) == {old: before, new: PROJECTS - before}
    assert stopped.lines("lease lost"), "its lock, too"
    assert books.one("select ended_at is null from runs where term = %(term)s", term=old)


@pytest.mark.parametrize("fault", [Valkey.flush, Valkey.restart], ids=["flushed", "restarted"])
def test_when_redis_forgets_the_lock_in_the_middle_of_a_run_the_tick_is_resumed(
    place: Town, books: Books, redis: Valkey, fault: Callable[[Valkey], None]
) -> None:
    books.projects(PROJECTS)
    for _ in range(2):
        place.start("worker")
    with books.in_the_middle(HEALTH, 5):
        assert redis.keys() == ["cron:health-check"]
        fault(redis)
        lost = holder(place, books, HEALTH)
        wait_until(lambda: lost.lines("lease lost"), "it is told", timeout=SOON)
    wait_until(
        lambda: books.one("select count(*)::int from runs where ended_at is not null") == 1, "it ends", timeout=SOON
    )
    assert books.each_once()
    assert books.one("select count(distinct tick)::int from runs") == 1
    assert books.overlaps() == []


@pytest.mark.proof(beside="test_when_redis_forgets_the_lock_in_the_middle_of_a_run_the_tick_is_resumed")
def test_when_redis_goes_away_in_the_middle_of_a_run_nothing_runs_until_it_is_back(
    place: Town, books: Books, redis: Valkey
) -> None:
    books.projects(PROJECTS)
    workers = [place.start("worker", TRUEUP_LOG_LEVEL="info") for _ in range(2)]
    with books.in_the_middle(HEALTH, 5):
        redis.stop()
        lost = holder(place, books, HEALTH)
        wait_until(lambda: lost.lines("lease lost"), "it is told", timeout=SOON)
    before = books.checked()
    waits = "run waits for its lease"
    in_vain = "it is asked for in vain"
    wait_until(lambda: any(worker.lines(waits) for worker in workers), in_vain, timeout=SOON, pause=0.1)
    assert books.checked() == before < PROJECTS
    redis.start()
    wait_until(
        lambda: books.one("select count(*)::int from runs where ended_at is not null") == 1, "it ends", timeout=SOON
    )
    assert books.each_once()
    assert books.one("select count(distinct tick)::int from runs") == 1


@pytest.mark.proof(beside="tests/work/jobs/test_exclusive.py::test_a_run_takes_the_lease_of_its_schedule")
def test_a_run_that_lasts_longer_than_the_interval_is_never_beside_the_next_one(place: Town, books: Books) -> None:
    """Ticks every four seconds; what is read is not to be had for as long as two of them."""
    with books.held_up():
        books.projects(30)
        for _ in range(2):
            place.start("worker", PULSE_HEALTH_CHECK_SCHEDULE="*/4 * * * * *")
        books.wait_for_held_up(5)
        wait_until(lambda: books.ticks(HEALTH).total() >= 3, "two more were due", timeout=SOON)
        ticks = books.ticks(HEALTH)
        assert ticks.pop("fired") == 1
        assert set(ticks) <= {"still running", "still waiting to run"}, "both with the reason"
        assert books.one("select count(distinct tick)::int from runs") == 1
    wait_until(lambda: books.each_once(), "all are checked", timeout=SOON)
    wait_until(
        lambda: books.one("select count(distinct tick)::int from runs") >= 2, "ticks are run again", timeout=SOON
    )
    assert books.overlaps() == []
    assert 1 < books.one(PEAK.format("health_checks")) <= 5


def test_reports_are_made_once_although_their_maker_is_killed(place: Town, books: Books) -> None:
    books.projects(10)
    books.all(
        "insert into report_schedules (project_id, frequency, anchor_day, next_run)"
        " select 1 + n %% 10, (array['DAILY', 'WEEKLY', 'BIWEEKLY', 'MONTHLY'])[1 + n %% 4], 31, now() - interval '1 hour'"
        "   from generate_series(1, %(number)s) as n",
        number=PROJECTS,
    )
    for _ in range(2):
        place.start("worker")
    made = "select count(*)::int from reports"
    with books.in_the_middle(REPORTS, 3):
        before = books.one(made)
        holder(place, books, REPORTS).kill()
    wait_until(
        lambda: books.one("select count(*)::int from runs where ended_at is not null") == 1, "it ends", timeout=SOON
    )
    assert 3 <= before < PROJECTS
    assert books.one(made) == PROJECTS
    assert books.one("select count(*)::int from report_schedules where next_run > now() and version = 1") == PROJECTS
    assert 1 < books.one(PEAK.format("reports")) <= 3


def test_a_worker_that_is_asked_to_stop_hands_its_run_to_another(place: Town, books: Books) -> None:
    books.projects(PROJECTS)
    first = place.start("worker", TRUEUP_DRAIN_FOR="100ms", TRUEUP_LOG_LEVEL="info")
    with books.in_the_middle(HEALTH, 5):
        first.ask_to_stop()
        assert first.ended() == 0
        before = books.checked()
    place.start("worker")
    wait_until(
        lambda: books.one("select count(*)::int from runs where ended_at is not null") == 1, "it ends", timeout=SOON
    )
    assert before < PROJECTS
    assert books.each_once()
    assert [row["attempt"] for row in books.all("select attempt from runs order by term")] == [1, 1], "none is spent"


def test_the_api_serves_with_a_worker_inside_and_runs_a_job_when_asked(place: Town, books: Books) -> None:
    books.projects(3)
    process, base = place.serve("serve", "--worker")
    assert isinstance(ask(f"{base}/jobs/{HEALTH}/run", "POST")["job_id"], int)
    wait_until(lambda: ask(f"{base}/jobs/{HEALTH}/runs")["runs"][:1], "it has run", timeout=SOON)
    wait_until(lambda: ask(f"{base}/jobs/{HEALTH}/runs")["runs"][0]["succeeded"] == 3, "it has ended", timeout=SOON)
    assert [project["health_level"] for project in ask(f"{base}/projects")] == ["GOOD"] * 3
    assert f"pulse: listening on {base}" in process.said
    assert (ask(f"{base}/healthz"), ask(f"{base}/readyz")) == ({"alive": True}, {"ready": True, "down": []})
    assert process.stop() == 0
    assert "Traceback" not in process.said


def test_a_password_appears_in_no_log(place: Town, books: Books, redis: Valkey) -> None:
    redis.stop()
    worker = place.start(
        "worker", PULSE_REDIS_URL=redis.url.replace("redis://", "redis://:hunter2@"), TRUEUP_LOG_LEVEL="debug"
    )
    books.trigger(HEALTH)
    wait_until(lambda: worker.lines("run waits for its lease"), "Redis is away", timeout=SOON)
    assert worker.stop() == 0
    assert "hunter2" not in worker.said


@pytest.mark.parametrize("command", ["worker", "serve", "seed"])
def test_a_database_that_was_not_prepared_is_told_of_with_2(
    empty_database_url: str, redis: Valkey, tmp_path: Path, command: str
) -> None:
    with town(
        "apps.pulse", {"TRUEUP_DATABASE_URL": empty_database_url, "PULSE_REDIS_URL": redis.url}, tmp_path
    ) as place:
        process = place.start(command)
        assert process.ended() == 2
        assert "trueup migrate" in process.said
        assert "Traceback" not in process.said


def test_a_database_that_cannot_be_reached_is_told_of_with_1(redis: Valkey, tmp_path: Path) -> None:
    with ports.reserve() as nobody:
        url = f"postgresql://user:hunter2@127.0.0.1:{ports.number(nobody)}/pulse"
        with town("apps.pulse", {"TRUEUP_DATABASE_URL": url, "PULSE_REDIS_URL": redis.url}, tmp_path) as place:
            process = place.start("worker")
            assert process.ended() == 1
            assert process.said.startswith("pulse: cannot connect to ")
            assert "hunter2" not in process.said
