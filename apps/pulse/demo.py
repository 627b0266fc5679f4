"""All of it on this machine for a while: a fleet of workers, a lock holder that is killed, a Redis that forgets, a receiver of
notices that fails; and the books."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apps.own_database import own_database
from apps.rounds import rounds
from apps.servers.receiver import Receiver
from apps.servers.valkey import Valkey
from trueup import App

from . import database
from .books import COUNTS, balance
from .check import check
from .config import Config
from .plan import HEALTH_CHECK, JOBS
from .seed import Size, fill
from .service import Service, build

EVERY = "*/5 * * * * *"  # usually a quarter of an hour or a day
SETTINGS = {
    **{job.variable: EVERY for job in JOBS},
    "PULSE_LOCK_TTL": "2s",  # usually a minute; so that a takeover can be watched
    "PULSE_WEBHOOK_ALLOW": "127.0.0.1",
    "TRUEUP_LEASE_FOR": "2s",
    "TRUEUP_RESCUE_EVERY": "250ms",
    "TRUEUP_DRAIN_FOR": "5s",
    "TRUEUP_POOL_SIZE": "8",
    "TRUEUP_LOG_FORMAT": "json",
}
FIRST, MORE = Size(projects=200, reports=60, users=20), Size(projects=5, reports=3, users=1)
RECEIVER_FAILS_FOR = 5.0  # seconds
STALLED_AFTER = 60.0  # seconds without progress when nothing more comes
STOP_WITHIN = 30.0
LOGGED = 5  # lines of each worker, when something is wrong
PROGRESS = """
select (select count(*) from projects)::int as projects, (select count(*) from projects where last_health_check is not null)::int as checked,
       (select count(*) from reports)::int as reports, (select count(*) from reminders)::int as reminders,
       (select count(*) from briefings)::int as briefings, (select count(*) from runs where ended_at is not null)::int as runs
"""
HOLDER = "select instance from runs where job = %(job)s and ended_at is null order by began_at desc limit 1"
NEW_PROJECTS = "insert into projects (name) select 'new project ' || n from generate_series(1, 50) as n returning id"
HELD_UP = "select count(*)::int as waiting from pg_locks where not granted and relation = 'tasks'::regclass"


def demo(seconds: int, workers: int) -> int:
    """0 when the books balance, 1 when they do not."""
    temporary = tempfile.TemporaryDirectory(prefix="pulse-demo-", ignore_cleanup_errors=True)
    with temporary as name, Valkey() as redis, Receiver() as receiver:
        directory = Path(name)
        directory.chmod(0o711)  # an embedded PostgreSQL may have to run as another user, who needs access
        os.environ.update({**SETTINGS, "PULSE_REDIS_URL": redis.url, "TRUEUP_DATA_DIR": str(directory / "postgres")})
        os.environ["PULSE_WEBHOOK_URL"] = receiver.url
        try:
            service = build(Config.from_environment())
            return asyncio.run(Demo(directory, redis, receiver, service).run(seconds, workers))
        except (TimeoutError, KeyboardInterrupt) as error:
            print(f"pulse: the demo came to no end: {str(error) or 'interrupted'}", file=sys.stderr)
            return 1
        finally:
            if (
                directory / "postgres"
            ).exists():  # an embedded one keeps running for a while, in case another process connects
                stop = [sys.executable, "-m", "trueup.cli", "postgres", "stop"]
                subprocess.run(stop, stdout=subprocess.DEVNULL, timeout=STOP_WITHIN, check=False)


class Demo:
    def __init__(self, directory: Path, redis: Valkey, receiver: Receiver, service: Service) -> None:
        self._directory = directory
        self._redis = redis
        self._receiver = receiver
        self._service = service
        self._app: App = service.app
        self._workers: list[subprocess.Popen[bytes]] = []
        self._began = time.monotonic()

    async def run(self, seconds: int, workers: int) -> int:
        store = await self._app.open()
        await asyncio.to_thread(store.migrate)
        await self._service.prepare()
        with self._fleet(workers):
            await self._fill(FIRST)
            await self._resume()
            started = time.monotonic() - self._began
            for each in rounds(seconds):
                await self._traffic(until=started + each.at(1 / 3))
                await self._kill_the_holder()
                self._say(f"the receiver of reminders and alerts answers 503 for {RECEIVER_FAILS_FOR:g} s")
                self._receiver.fail(RECEIVER_FAILS_FOR)
                await self._traffic(until=started + each.at(2 / 3))
                self._say("Redis is restarted, and has forgotten every lock")
                await asyncio.to_thread(self._redis.restart)
                await self._traffic(until=started + each.end)
            self._say("nothing more is added; what is due is done")
            settled = await self._settle()
        books = await balance(self._app, self._redis.keys())
        books.check(settled, f"nothing more was done for {STALLED_AFTER:g} s")
        independently = await self._check_independently()
        for wrong in independently:
            books.check(False, f"independently: {wrong}")
        await self._service.close()
        print(books.line)
        if books.wrong:
            print(f"The last lines of the workers' logs:\n{self._logged()}", file=sys.stderr)
        if not independently:
            print(
                "An independent check of tables, Redis and receiver agrees: nothing is lost, doubled or stuck;"
                f" {len(self._receiver.taken)} reminders and alerts arrived."
            )
        return 1 if books.wrong else 0

    def _logged(self) -> str:
        logs = sorted(self._directory.glob("worker-*.log"))
        return "\n".join(line for log in logs for line in log.read_text(errors="replace").splitlines()[-LOGGED:])

    async def _check_independently(self) -> list[str]:
        """By code that shares nothing with the application."""
        return await asyncio.to_thread(
            check,
            await own_database(self._app),
            self._redis.url,
            self._receiver.taken,
            schema=self._app.settings.schema,
        )

    # -- the fleet ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _fleet(self, count: int) -> Iterator[None]:
        """So many workers; asked to stop at the end, and killed if something went wrong."""
        try:
            for _ in range(count):
                self._start()
            self._say(f"{count} workers; every job is due every 5 seconds")
            yield
            for worker in self._workers:
                worker.send_signal(signal.SIGTERM)
            for worker in self._workers:
                worker.wait(STOP_WITHIN)
        finally:
            for worker in self._workers:
                worker.kill()
                worker.wait()

    def _start(self) -> None:
        log = (self._directory / f"worker-{len(self._workers)}.log").open("ab")
        with log:
            command = [sys.executable, "-m", "apps.pulse", "worker"]
            self._workers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    async def _kill_the_holder(self) -> None:
        """In the middle of its checks: what they read is kept from them until it is dead."""
        async with self._app.transaction() as tx:
            await tx.execute("lock table tasks")
            await self._rows(NEW_PROJECTS)
            await self._until("a run is held up", self._held_up)
            worker = await self._holder()
            assert worker is not None
            worker.kill()
            worker.wait()
        self._say(f"worker {worker.pid} is killed while it holds {HEALTH_CHECK.lock_key}; another one is started")
        self._workers.remove(worker)
        self._start()

    async def _held_up(self) -> bool:
        return bool((await self._one(HELD_UP))["waiting"] and await self._holder())

    async def _holder(self) -> subprocess.Popen[bytes] | None:
        """Of the newest run that has not ended; a run that was cut off never does, and its worker is gone."""
        for run in await self._rows(HOLDER, job=HEALTH_CHECK.name):
            pid = int(run["instance"].rpartition(":")[2])
            return next((each for each in self._workers if each.pid == pid), None)
        return None

    # -- what there is to do --------------------------------------------------------------------------------------------

    async def _traffic(self, *, until: float) -> None:
        """A few more projects, reports, checkpoints and users every second, and a line every five."""
        while (passed := time.monotonic() - self._began) < until:
            await self._fill(MORE)
            if int(passed) % 5 == 0:
                self._say(await self._progress())
            await asyncio.sleep(1)

    async def _fill(self, size: Size) -> None:
        async with self._app.transaction() as tx:
            await fill(tx, size)

    async def _settle(self) -> bool:
        """Until nothing is left, and for one tick of each job at least; then no further ones. Whether all that has ended."""
        await asyncio.sleep(6)
        try:
            await self._until("nothing is left", self._nothing_left, self._left)
            for job in JOBS:
                await self._app.schedules.pause(job.name, "the demo is over")
            await self._until("nothing runs", self._nothing_runs)
            await self._until("all notices are sent", self._nothing_to_send, self._to_send)
        except TimeoutError:
            return False
        return True

    async def _nothing_left(self) -> bool:
        return not any(await self._left())

    async def _left(self) -> list[int]:
        counts = await self._one(COUNTS)
        return [counts[name] for name in ("unchecked", "reports_due", "old_messages")]

    async def _nothing_runs(self) -> bool:
        return all(not each["unfinished"] for each in await self._app.schedules.list() if each["name"] in _names())

    async def _nothing_to_send(self) -> bool:
        return await self._to_send() == 0

    async def _to_send(self) -> int:
        return (await self._app.jobs.count(kind="pulse_notice", state=("queued", "running"))).number

    async def _resume(self) -> None:
        """Of an earlier demo on the same database."""
        await self._until("the schedules are known", self._known)
        for job in JOBS:
            await self._app.schedules.resume(job.name)

    async def _known(self) -> bool:
        self._all_alive()
        return {each["name"] for each in await self._app.schedules.list()} >= _names()

    def _all_alive(self) -> None:
        for number, worker in enumerate(self._workers):
            if worker.poll() is not None:
                raise SystemExit((self._directory / f"worker-{number}.log").read_text(errors="replace"))

    async def _progress(self) -> str:
        counts = await self._one(PROGRESS)
        told = "{checked} of {projects} projects checked, {reports} reports, {reminders} reminders, {briefings} briefings, {runs} runs"
        return told.format(**counts)

    # -- common -----------------------------------------------------------------------------------------------------------

    async def _rows(self, statement: str, **params: Any) -> list[dict[str, Any]]:
        async with self._app.transaction() as tx:
            return await database.rows(tx, statement, params)

    async def _one(self, statement: str, **params: Any) -> dict[str, Any]:
        return (await self._rows(statement, **params))[0]

    async def _until(self, what: str, condition: Any, progress: Any = None) -> None:
        """Raises TimeoutError when it takes long, or rather when nothing has changed for that long, if `progress` tells what has."""
        deadline, before = time.monotonic() + STALLED_AFTER, None
        while not await condition():
            if progress is not None and (now := await progress()) != before:
                deadline, before = time.monotonic() + STALLED_AFTER, now
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {STALLED_AFTER:g} s in vain until {what}")
            await asyncio.sleep(0.1)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)


def _names() -> set[str]:
    return {job.name for job in JOBS}
