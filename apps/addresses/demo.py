"""A minute of a chain with traffic, and a fleet that keeps up with it: one worker is killed, a few blocks are replaced, the node hangs
and lies for a while, and at the end the local copy is compared with the chain itself. Everything is real, on loopback, in a directory of its
own."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from apps.chain.anvil import Anvil
from apps.chain.hostile import LIES, Hostile, hostile_to
from apps.own_database import own_database
from apps.rounds import rounds
from apps.servers.server import ServerError
from trueup import App, ConfigError
from trueup.web.database import prepare_database
from trueup.web.service import own_app

from . import books
from .check import Checked, check

ROOT = Path(__file__).parents[2]
WORKERS = 3
TICKS = "*/3 * * * * *"  # every three seconds; usually once a day
REORG = 4  # blocks
HANGS_FOR = 6.0  # seconds: longer than a request may take
LIES_FOR = 5.0  # seconds
STEP = 0.25  # seconds between blocks
WITHIN = 60.0  # seconds for what should take a few
SETTINGS = {
    "RECONCILIATION_SCHEDULER_ENABLED": "true",
    "RECONCILIATION_WORKER_ENABLED": "true",
    "RECONCILIATION_CRON_SCHEDULE": TICKS,
    "RECONCILIATION_POLLING_INTERVAL_MS": "500",
    "RECONCILIATION_PROVIDER_RATE": "30/s",  # usually one; the node is ours
    "RECONCILIATION_TIP_FRESH_FOR": "200ms",  # usually ten seconds: blocks come quicker here
    "RECONCILIATION_LEASE_FOR": "2s",
    "RECONCILIATION_PAUSE_FOR": "2s",  # usually half a minute; so that the fleet soon asks a node again that has lied
    "TRUEUP_LEASE_FOR": "2s",
    "TRUEUP_RESCUE_EVERY": "500ms",
    "TRUEUP_POOL_SIZE": "5",
    "TRUEUP_DRAIN_FOR": "5s",
    "TRUEUP_LOG_FORMAT": "json",
}


class StepFailed(Exception):
    """Something did not happen in time."""


def run(*, seconds: float) -> int:
    """0 when the books balance, 1 when they do not or something failed, 2 when it could not begin. Nothing is left behind but,
    after a failure, the directory with the logs."""
    directory = Path(tempfile.mkdtemp(prefix="addresses-demo-"))
    directory.chmod(0o711)  # as root, PostgreSQL runs as the user nobody, who needs access; what is inside is private
    status = 1
    try:
        status = asyncio.run(_tell(directory, seconds))
    except KeyboardInterrupt:
        print("interrupted")
        status = 130
    except (ServerError, StepFailed) as error:
        print(f"failed: {error}")
    except ConfigError:
        status = 2
        raise
    finally:
        _stop_postgres(directory)
        if status == 1:
            print(f"The logs are in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return status


async def _tell(directory: Path, seconds: float) -> int:
    with ExitStack() as stack:
        node = stack.enter_context(Anvil("--no-mining", "--chain-id", "1"))
        seen = stack.enter_context(hostile_to(node.url))
        print("starting a PostgreSQL, unless TRUEUP_DATABASE_URL names one", flush=True)
        app = own_app("addresses", data_dir=str(directory / "postgres"))
        try:
            story = Story(app, node, seen, directory, stack)
            await story.begin()
            await story.traffic(seconds)
            await story.settle()
            holds, line = told(await story.prove())
        finally:
            stack.close()  # the workers first: they use the database
            await app.close()
    print(line, flush=True)
    return 0 if holds else 1


class Story:
    """`seen` is what the workers see of the node."""

    def __init__(self, app: App, node: Anvil, seen: Hostile, directory: Path, stack: ExitStack) -> None:
        self._app = app
        self._node = node
        self._seen = seen
        self._directory = directory
        self._stack = stack
        self._chance = random.Random(1)  # noqa: S311 - nothing secret about it
        self._workers: list[subprocess.Popen[bytes]] = []
        self._senders = list(node.accounts())
        self._watched = [*self._senders, *(f"0x{number:040x}" for number in range(0xADA1, 0xADA5))]

    async def begin(self) -> None:
        await asyncio.to_thread(self._app.store.migrate)
        await prepare_database(self._app, books.make_tables)
        if await self._count("select count(*) from addresses"):
            raise ConfigError("TRUEUP_DATABASE_URL: there are addresses already, and the demo is not about those")
        async with self._app.transaction() as tx:
            await tx.execute(
                "insert into addresses (address, chain, first_block) select unnest(%s::text[]), 'ethereum', 0",
                [self._watched],
            )
        for _ in range(WORKERS):
            self._start()
        print(f"{len(self._watched)} monitored addresses, {WORKERS} instances with scheduler and worker", flush=True)

    def _start(self) -> None:
        with (self._directory / "workers.log").open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "apps.addresses", "worker"],
                cwd=ROOT,
                env=_environment(self._directory) | {"RECONCILIATION_PROVIDERS": f"ethereum={self._seen.url}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for us: we end them
            )
        self._workers.append(worker)
        self._stack.callback(_end, worker)

    async def traffic(self, seconds: float) -> None:
        """Transfers and blocks; in each round one worker is killed while it has a job, the node hangs and lies, and a few blocks are replaced."""
        started = told = time.monotonic()
        faults: list[tuple[float, Callable[[], Awaitable[bool]]]] = []
        for each in rounds(seconds):
            faults += [(each.at(0.3), self._kill), (each.at(0.4), self._hang)]
            faults += [(each.at(0.6), self._reorganise), (each.at(0.7), self._lie)]
        while (now := time.monotonic()) < started + seconds or faults:
            if now > started + seconds + WITHIN:
                raise StepFailed("no worker was seen at work")
            self._mine()
            if faults and now > started + faults[0][0] and await faults[0][1]():
                faults.pop(0)
            if now > told + 5:
                told = now
                await self._report(now - started)
            await asyncio.sleep(STEP)

    def _mine(self) -> None:
        """A block with a few transfers."""
        for _ in range(self._chance.randrange(1, 4)):
            sender, receiver = self._chance.choice(self._senders), self._chance.choice(self._watched)
            self._node.send(sender, receiver, self._chance.randrange(1, 10**18))
        self._node.mine()

    async def _kill(self) -> bool:
        """Whether there was a worker to kill that may have been in the middle of something; another one takes its place."""
        if not await self._count("select count(*) from reconciliation_jobs where status = 'running'"):
            return False
        killed = self._workers.pop(0)
        _end(killed)
        print(f"worker {killed.pid} is killed, and a new one starts", flush=True)
        self._start()
        return True

    async def _reorganise(self) -> bool:
        await self._reconciled()  # so that there is something to take back
        self._node.reorganise(REORG)
        print(f"the last {REORG} blocks are replaced by empty ones", flush=True)
        return True

    async def _hang(self) -> bool:
        print(f"the node takes requests and answers none for {HANGS_FOR:g} s", flush=True)
        with self._node.hanging():
            await asyncio.sleep(HANGS_FOR)
        return True

    async def _lie(self) -> bool:
        """While blocks come as always."""
        self._seen.mode = self._chance.choice(list(LIES))
        print(f"the node lies to the workers for {LIES_FOR:g} s: {self._seen.mode}", flush=True)
        until = time.monotonic() + LIES_FOR
        while time.monotonic() < until:
            self._mine()
            await asyncio.sleep(STEP)
        self._seen.mode = None
        return True

    async def _report(self, elapsed: float) -> None:
        here = await self._count("select count(*) from transactions where deleted_at is null")
        done = await self._count("select count(*) from reconciliation_jobs where status = 'completed'")
        gone = await self._count("select count(*) from transactions where deleted_at is not null")
        height = self._node.height()
        print(
            f"{elapsed:4.0f} s  block {height}  {done} jobs done  {here} transactions here, {gone} soft-deleted",
            flush=True,
        )

    async def settle(self) -> None:
        """Until every address has been compared with the chain as it is now; then the fleet stops in order."""
        self._node.mine()  # a height that no job has reached: the last one may have been reached before the blocks were replaced
        await self._reconciled()
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            if worker.wait(WITHIN) != 0:
                raise StepFailed(f"worker {worker.pid} ended with status {worker.returncode}")

    async def _reconciled(self) -> None:
        height = self._node.height()
        behind = "select count(*) from addresses where last_reconciled_block is distinct from %s"
        await _until(lambda: self._none(behind, height), f"every address is reconciled with block {height}")

    async def prove(self) -> Checked:
        """By code that shares nothing with the application."""
        return await asyncio.to_thread(
            check, await own_database(self._app), self._node.url, schema=self._app.settings.schema
        )

    async def _count(self, query: str, *params: Any) -> int:
        async with self._app.transaction() as tx:
            row: Any = await (await tx.execute(query, params)).fetchone()
        return int(row[0])

    async def _none(self, query: str, *params: Any) -> bool:
        return await self._count(query, *params) == 0


def told(checked: Checked) -> tuple[bool, str]:
    """Whether the proof holds, and the last line."""
    taken_back = [] if checked.soft_deleted else ["nothing was taken back, although blocks were replaced"]
    wrong = [*checked.wrong, *taken_back]
    here = checked.added - checked.soft_deleted
    if here != checked.here:
        wrong.append(f"{checked.here} transactions are here, and the audit log says {here}")
    if wrong:
        return False, f"The books do NOT balance: {'; '.join(wrong)}"
    return True, (
        f"The books balance, by an independent check of tables and node: {checked.addresses} addresses,"
        f" {checked.on_chain} transactions on the chain = {checked.here} in the local copy"
        f" = {checked.added} added - {checked.soft_deleted} soft-deleted; {checked.jobs} jobs of {checked.ticks} ticks,"
        " none doubled, failed or left running"
    )


async def _until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WITHIN
    while not await condition():
        if time.monotonic() > deadline:
            raise StepFailed(f"waited {WITHIN:g} s in vain until {what}")
        await asyncio.sleep(STEP)


def _environment(directory: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILIATION_")}
    return {**inherited, **SETTINGS, "TRUEUP_DATA_DIR": str(directory / "postgres")}


def _stop_postgres(directory: Path) -> None:
    """The embedded one, at once and not a while after its last user: its directory is about to go."""
    if (directory / "postgres").exists():
        stop = [sys.executable, "-m", "trueup.cli", "postgres", "stop"]
        subprocess.run(stop, cwd=directory, env=_environment(directory), capture_output=True, timeout=WITHIN)


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
