"""The deploy matrix: two releases that differ in one declaration, started and stopped in every order.

Producers of both releases enqueue all the time, and schedules that were made at run time by either fire all the time. In each
cell nothing is stranded, nothing is retired that a living worker declares, nothing fires for ever without a worker that
declares it, every tick is accounted for, and the log names what waits for nobody.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from tests.support.waiting import wait_until
from tests.work.fleet import Declare, Fleet, Pod, crons, jobs
from trueup import App, Rate
from trueup.events import JobsUnserved, ScheduleRetired, ScheduleUndeclared
from trueup.schedules import Every
from trueup.testing.clock import ManualClock

SERVICE = crons("heartbeat")  # what every release declares


def both(*declares: Declare) -> Declare:
    def declare(app: App) -> None:
        for each in (SERVICE, *declares):
            each(app)

    return declare


def with_more_arguments(app: App) -> None:
    @app.job
    async def send(tenant: str = "a", retries: int = 0) -> None: ...


def on_an_executor(app: App) -> None:
    @app.job(executor=ThreadPoolExecutor(1))
    def send(tenant: str = "a") -> None: ...


def in_a_thread(app: App) -> None:
    @app.job
    def send(tenant: str = "a") -> None: ...


def fair_by_region(app: App) -> None:
    @app.job(fair_by="region")
    async def send(tenant: str = "a", region: str = "eu") -> None: ...


def hourly(app: App) -> None:
    @app.every("1h", name="nightly")
    async def nightly() -> None: ...


RATE = Rate(
    1000, timedelta(seconds=1), burst=1000
)  # at once: time stands still, so a slot to come would never be there
PLAIN = both(jobs("send"))
LIMITED, RATED = both(jobs("send", limit=1)), both(jobs("send", rate=RATE))
FAIR = both(jobs("send", fair_by="tenant"))

DIFFERENCES: dict[str, tuple[Declare, Declare]] = {
    "limit added": (PLAIN, LIMITED),
    "limit removed": (LIMITED, PLAIN),
    "limit changed": (LIMITED, both(jobs("send", limit=5))),
    "rate added": (PLAIN, RATED),
    "rate removed": (RATED, PLAIN),
    "fairness added": (PLAIN, FAIR),
    "fairness removed": (FAIR, PLAIN),
    "schedule added": (PLAIN, both(jobs("send"), crons("nightly"))),
    "schedule removed": (both(jobs("send"), crons("nightly")), PLAIN),
    "schedule renamed": (both(jobs("send"), crons("before")), both(jobs("send"), crons("after"))),
    "schedule changed": (
        both(jobs("send"), crons("nightly", expr="10 * * * *")),
        both(jobs("send"), crons("nightly", expr="20 * * * *")),
    ),
    "schedule from cron to every": (both(jobs("send"), crons("nightly")), both(jobs("send"), hourly)),
    "queue renamed": (both(jobs("send", queue="one")), both(jobs("send", queue="two", limit=5))),
    "queue removed": (
        both(jobs("send"), jobs("report", queue="reports"), crons("nightly", queue="reports")),
        PLAIN,
    ),
    "kind removed": (both(jobs("send", "report")), PLAIN),
    "signature changed": (PLAIN, both(with_more_arguments)),
    "queue of a limited kind renamed": (
        both(jobs("send", queue="one", limit=5)),
        both(jobs("send", queue="two", limit=5)),
    ),
    "fair by another argument": (FAIR, both(fair_by_region)),
    "executor changed": (both(in_a_thread), both(on_an_executor)),
}


@dataclass
class Deployment:
    """A deployment under way. `stage` is a while of ordinary life, watched."""

    fleet: Fleet
    old: Declare
    new: Declare
    producers: list[App]

    async def start(self, release: Declare) -> Pod:
        return await self.fleet.start(release, retire_after="30m")

    async def stage(self, rounds: int = 2) -> None:
        for _ in range(rounds):
            await self.enqueue()
            await self.fleet.live(0.25)
            for pod in self.fleet.alive:
                await pod.work()
            self.nothing_living_is_retired()

    async def enqueue(self) -> None:
        for app in self.producers:
            for job in app.registry:
                if job.kind in ("send", "report"):
                    await job.enqueue()

    def nothing_living_is_retired(self) -> None:
        states = self.fleet.states()
        declared = {name for pod in self.fleet.alive for name in pod.app._schedules}
        assert {name: states.get(name) for name in declared} == dict.fromkeys(declared, "active")


async def old_first(deployment: Deployment) -> Declare:
    pod = await deployment.start(deployment.old)
    await deployment.stage()
    await pod.stop()
    await deployment.start(deployment.new)
    return deployment.new


async def new_first(deployment: Deployment) -> Declare:
    pod = await deployment.start(deployment.old)
    await deployment.stage()
    await deployment.start(deployment.new)
    await deployment.stage()
    await pod.stop()
    return deployment.new


async def rolling(deployment: Deployment) -> Declare:
    one, two = await deployment.start(deployment.old), await deployment.start(deployment.old)
    await deployment.start(deployment.new)
    await deployment.stage(2)
    await one.stop()
    await two.stop()
    await two.start()  # one of the old release crashes and is restarted in the middle
    await deployment.stage(2)
    await deployment.start(deployment.new)
    await two.stop()
    return deployment.new


async def rollback(deployment: Deployment) -> Declare:
    pod = await deployment.start(deployment.old)
    await deployment.stage(2)
    new = await deployment.start(deployment.new)
    await pod.stop()
    await deployment.stage(4)  # longer than it takes to retire
    await deployment.start(deployment.old)
    await new.stop()
    return deployment.old


ORDERS: dict[str, Callable[[Deployment], Any]] = {
    "old first": old_first,
    "new first": new_first,
    "rolling": rolling,
    "rollback": rollback,
}


@pytest_asyncio.fixture
async def fleet(database_url: str, clock: ManualClock) -> AsyncIterator[Fleet]:
    fleet = Fleet(database_url, clock)
    yield fleet
    await fleet.close()


def producer(fleet: Fleet, release: Declare) -> App:
    app = App(fleet.url, clock=fleet.clock)
    release(app)
    return app


async def make_at_run_time(app: App, name: str) -> None:
    """A user's own schedule, if this release's job can have one: its runs have no key to be fair by."""
    job = app.registry["send"]
    if job.controls.fair_by is None:
        await app.schedules.create(name, Every("30m"), job.call())


@pytest.mark.matrix
@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("difference", DIFFERENCES)
async def test_deploying(fleet: Fleet, difference: str, order: str) -> None:
    old, new = DIFFERENCES[difference]
    producers = [producer(fleet, old), producer(fleet, new)]
    deployment = Deployment(fleet, old, new, producers)
    await deployment.enqueue()
    fleet.bury_all()
    dead = [row[0] for row in fleet.rows("select id from trueup.history")]
    for app, name in zip(producers, ("made by old", "made by new"), strict=True):
        await make_at_run_time(app, name.replace(" ", "-"))
    last = await ORDERS[order](deployment)
    await deployment.stage(2)
    await producers[0].jobs.revive(dead)
    await deployment.stage(3)
    (here, *_) = alive = fleet.alive
    known, declared = {job.kind for job in here.app.registry}, set(here.app._schedules)
    assert all({job.kind for job in pod.app.registry} == known for pod in alive)

    served = {queue for pod in alive for queue in pod.app.registry.queues()}
    waiting = fleet.rows(
        "select kind, queue from trueup.jobs where state = 'running' or run_at <= %(now)s", {"now": fleet.clock.now()}
    )
    assert [row for row in waiting if row[0] in known and row[1] in served] == [], "stranded"
    lost = fleet.rows("select kind, reason from trueup.history where state <> 'done'")
    assert {reason for _, reason in lost} <= {"its arguments do not fit the job"}
    assert not lost or difference == "signature changed"
    unknown = {kind for kind, _ in waiting}
    assert unknown <= set(fleet.said(JobsUnserved, "kind")), "the log names what waits for nobody"
    assert unknown == {each["kind"] for each in await here.app.store.views.unserved()}, "and so does status"

    elsewhere = {name for app in producers for name in app._schedules} - declared
    states = fleet.states()
    assert {name: states[name] for name in elsewhere if name in states} == dict.fromkeys(
        elsewhere & states.keys(), "retired"
    ), "fires for ever, and no worker declares it"
    assert elsewhere & states.keys() <= set(fleet.said(ScheduleRetired)) & set(fleet.said(ScheduleUndeclared))
    specs = {entry.name: entry.spec for entry in here.app._schedules.values()}
    assert {name: (await here.app.schedules.preview(name, 2027)).first for name in specs} == {
        name: (await here.app.schedules.preview(spec, 2027)).first for name, spec in specs.items()
    }, "the stored schedule is that of the release which runs"
    assert (await here.app.schedules.audit("7d")).clean
    assert last in (old, new)
    for app in producers:
        await app.close()


# -- with processes -----------------------------------------------------------------------------------------------------------

RELEASE = """
import os
from trueup import App

app = App()

@app.job({controls})
async def send(n: int) -> None: ...

{more}
"""
OLD = RELEASE.format(controls="limit=1", more="")
NEW = RELEASE.format(controls="", more='@app.every("1h")\nasync def hourly() -> None: ...')


@pytest.mark.slow
def test_real_processes_of_two_releases_strand_nothing_and_retire_nothing(database_url: str, tmp_path: Path) -> None:
    """The limit is removed and a schedule added, while an instance of the old release restarts and old producers go on."""
    (tmp_path / "old_release.py").write_text(OLD)
    (tmp_path / "new_release.py").write_text(NEW)
    environment = {**os.environ, "TRUEUP_DATABASE_URL": database_url, "PYTHONPATH": str(tmp_path)}
    running: list[subprocess.Popen[bytes]] = []

    def start(release: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "trueup.cli", "worker", "--app", f"{release}:app"]
        process = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
        running.append(process)
        wait_until(lambda: count("trueup.workers", f"pid = {process.pid}"), f"{release} runs", timeout=60)
        return process

    def stop(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        process.wait(60)
        running.remove(process)

    def count(table: str, where: str = "true") -> int:
        with psycopg.connect(database_url) as connection:
            row = connection.execute(f"select count(*) from {table} where {where}".encode()).fetchone()
            return int(row[0]) if row else 0

    async def enqueue(first: int) -> None:
        async with App(database_url) as app:

            @app.job(limit=1)
            async def send(n: int) -> None: ...

            for n in range(first, first + 5):
                await send.enqueue(n)

    try:
        old, _ = start("old_release"), start("new_release")
        asyncio.run(enqueue(0))
        wait_until(lambda: count("trueup.history", "state = 'done'") == 5, "both work", timeout=60)
        stop(old)
        old = start("old_release")
        assert count("trueup.schedules", "name = 'hourly' and state = 'active'") == 1
        stop(old)
        asyncio.run(enqueue(5))  # into the lane of a limit that no worker has any more
        wait_until(lambda: count("trueup.history", "state = 'done'") == 10, "none is stranded", timeout=60)
        assert count("trueup.schedules", "name = 'hourly' and state = 'active'") == 1
    finally:
        for process in running:
            process.kill()
            process.wait(60)
