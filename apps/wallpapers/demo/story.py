"""The demo from its first server to its last line."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from nats.errors import Error as NatsError

from apps.own_database import own_database
from apps.rounds import SEED, Round, rounds
from apps.servers.nats import NatsServer
from apps.servers.seaweed import Seaweed
from apps.wallpapers.check import Checked, check
from apps.wallpapers.config import Config
from apps.wallpapers.orphans import ORPHANED_OBJECTS
from apps.wallpapers.service import Service, build
from apps.wallpapers.storage import StorageUnavailable
from trueup import ConfigError
from trueup.web.service import own_app

from .books import Books, look
from .fleet import Part, wait_for
from .liar import LIES, Liar
from .traffic import Traffic

WORKERS = 3
SETTLE_WITHIN = 120.0  # seconds after the last upload; it takes about 25
AWAY = 5.0  # seconds for which a server is down
# Minutes become seconds: a demo takes no hour.
QUICK = {
    "RECONCILIATION_INTERVAL_MS": "1000",
    "MINIO_CLEANUP_INTERVAL_MS": "3600000",
    "WALLPAPERS_STUCK_AFTER": "4s",
    "WALLPAPERS_MISSING_AFTER": "3s",
    "WALLPAPERS_INTENT_FOR": "10s",
    "WALLPAPERS_ORPHAN_GRACE": "5s",
    "WALLPAPERS_ORPHAN_MAX_FRACTION": "0.9",
    "WALLPAPERS_LEASE_FOR": "2s",
    "WALLPAPERS_PAUSE_FOR": "1s",
    "S3_TIMEOUT": "5s",
    "TRUEUP_LEASE_FOR": "2s",
    "TRUEUP_POOL_SIZE": "5",  # those of a killed worker are there for a while, beside its successor's
    "TRUEUP_RESCUE_EVERY": "1s",
    "TRUEUP_LOG_FORMAT": "json",
}


def demo(seconds: int) -> int:
    """0 when the books balance at the end, 1 when they do not."""
    try:
        return asyncio.run(_demo(max(seconds, 12)))
    except KeyboardInterrupt:
        print("stopped")
        return 1


async def _demo(seconds: int) -> int:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wallpapers-")))
        print("Starting S3 (SeaweedFS), NATS and PostgreSQL …", flush=True)
        logging.getLogger("trueup").addHandler(logging.NullHandler())  # servers that go away are part of the story
        seaweed, nats = stack.enter_context(Seaweed("wallpapers")), stack.enter_context(NatsServer())
        liar = stack.enter_context(Liar(seaweed.url))
        environment = {**os.environ, "TRUEUP_DATA_DIR": str(directory / "postgres"), **QUICK}
        environment |= {"NATS_URL": nats.url, **seaweed.environment(), "S3_ENDPOINT_URL": liar.url}
        service = await _service(environment, stack)
        story = Story(service, seaweed, liar, nats, _fleet(environment, directory, stack), seconds)
        api = await asyncio.to_thread(_serve, environment, directory, stack)
        traffic = Traffic(service, api, seed=time.time_ns())
        stack.push_async_callback(traffic.aclose)
        return await story.tell(traffic)


async def _service(environment: dict[str, str], stack: AsyncExitStack) -> Service:
    given = environment.get("TRUEUP_DATABASE_URL") or environment.get("DATABASE_URL")
    app = own_app("wallpapers", database_url=given, data_dir=environment["TRUEUP_DATA_DIR"])
    if given is None:
        stack.callback(_stop_postgres, environment)
    service = build(Config.from_environment(environment), app)
    stack.push_async_callback(service.close)
    await asyncio.to_thread(lambda: app.store.migrate())
    await service.prepare()
    if (await look(service, environment["NATS_URL"])).states:
        raise ConfigError("the database has wallpapers already; the demo needs one that has none")
    return service


def _stop_postgres(environment: dict[str, str]) -> None:
    """It would end by itself after its last user, a moment too late for its directory to go."""
    command = [sys.executable, "-m", "trueup.cli", "postgres", "stop"]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)


def _fleet(environment: dict[str, str], directory: Path, stack: AsyncExitStack) -> list[Part]:
    fleet = [Part(f"worker {n}", directory / f"worker-{n}.log", environment, "worker") for n in range(1, WORKERS + 1)]
    for worker in fleet:
        worker.start()
        stack.callback(worker.stop)
    return fleet


def _serve(environment: dict[str, str], directory: Path, stack: AsyncExitStack) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("serve", "--no-reconciliation", "--port", str(port))
    api = Part("the API", directory / "api.log", environment, *options)
    api.start()
    stack.callback(api.stop)
    url = f"http://127.0.0.1:{port}"
    wait_for(api, f"{url}/healthz")
    return url


class Story:
    """`liar` is what the application sees of S3."""

    def __init__(
        self, service: Service, seaweed: Seaweed, liar: Liar, nats: NatsServer, fleet: list[Part], seconds: int
    ) -> None:
        self._service, self._seaweed, self._liar, self._nats = service, seaweed, liar, nats
        self._fleet, self._seconds = fleet, seconds
        self._random = random.Random(SEED)  # noqa: S311 - nothing secret about it
        self._quiet = asyncio.Event()

    async def tell(self, traffic: Traffic) -> int:
        self._began = time.monotonic()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._hurry)
        self._say(f"{len(self._fleet)} workers sweep, an API takes uploads, for {self._seconds} s")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(traffic.run(self._quiet))
            tasks.create_task(self._watch())
            tasks.create_task(self._misfortunes())
        broken = sum(count for kind, count in traffic.begun.items() if kind.startswith(("without", "object", "intent")))
        self._say(f"{traffic.uploads} uploads were begun, {broken} of them broke off; the sweeps see to the rest")
        return await self._settle(traffic)

    def _hurry(self) -> None:
        """Ctrl-C ends the uploads, and begins the proof; a second one ends it all."""
        self._quiet.set()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def _misfortunes(self) -> None:
        for each in rounds(self._seconds):
            await self._misfortunes_of(each)
        await self._until(self._seconds)
        self._quiet.set()

    async def _misfortunes_of(self, each: Round) -> None:
        away = min(AWAY, each.length / 4)
        worker = self._fleet[1]
        await self._until(each.at(0.25))
        self._say(f"{worker.name} (pid {worker.kill()}) is killed with whatever it has in hand")
        await self._until(each.at(0.375))
        self._say(f"S3 goes down for {away:g} s")
        await asyncio.to_thread(self._seaweed.stop)
        try:
            await self._pause(away)
        finally:
            await asyncio.to_thread(self._seaweed.start)
        self._say("S3 is back")
        await self._until(each.at(0.625))
        self._say(f"NATS is killed for {away:g} s; {worker.name} starts again")
        self._nats.kill()
        worker.start()
        await self._pause(away)
        await asyncio.to_thread(self._nats.start)
        self._say("NATS is back")
        await self._until(each.at(0.8))
        lie = self._random.choice(list(LIES))
        self._say(f"S3 lies for {away:g} s, with a status of 200: {lie}")
        with self._liar.telling(LIES[lie]):
            await self._pause(away)
        self._say("S3 tells the truth again")

    async def _watch(self) -> None:
        while not self._quiet.is_set():
            await self._pause(3)
            with suppress(StorageUnavailable, NatsError):  # one of them is away, on purpose
                self._say(str(await look(self._service, self._nats.url)))

    async def _settle(self, traffic: Traffic) -> int:
        deadline = time.monotonic() + SETTLE_WITHIN
        while True:
            books = await look(self._service, self._nats.url)
            self._say(str(books))
            wrong = books.wrong(traffic.planned)
            if not wrong or time.monotonic() > deadline:
                return await self._conclude(traffic, books, wrong)
            if books.settled:
                await self._service.app.reconcilers.run(ORPHANED_OBJECTS)
            await asyncio.sleep(2)

    async def _conclude(self, traffic: Traffic, books: Books, wrong: list[str]) -> int:
        checked = await self._checked(traffic)
        wrong += [f"independently: {each}" for each in checked.wrong]
        wrong += [f"{part.name} has ended:\n{part.said()}" for part in self._fleet if not part.alive]
        begun, failed, uploaded = traffic.uploads, books.states.get("failed", 0), len(books.announced)
        nothing = traffic.came_to_nothing
        if begun != uploaded + failed + nothing:
            wrong.append(f"{begun} uploads are not {uploaded} uploaded, {failed} failed and {nothing} removed ones")
        if wrong:
            print("The books do NOT balance: " + "; ".join(wrong))
            return 1
        print(
            f"The books balance: {begun} uploads = {uploaded} uploaded + {failed} failed for a known reason + {nothing} refused"
            f" videos, intents without a picture and stray objects, all removed; {uploaded} uploaded = {len(books.objects)} objects = {len(books.messages)} messages.\n"
            f"An independent check agrees: {checked.objects} objects with the bytes of their rows, {checked.messages} events,"
            " each once; nothing is lost, doubled or stuck."
        )
        return 0

    async def _checked(self, traffic: Traffic) -> Checked:
        """By code that shares nothing with the application."""
        database = await own_database(self._service.app)
        config, s3 = self._service.config, self._seaweed.environment()
        where = config.storage.bucket, self._nats.url, config.stream
        return await asyncio.to_thread(check, database, s3, *where, traffic.taken)

    async def _until(self, second: float) -> None:
        await self._pause(self._began + second - time.monotonic())

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._quiet.wait(), max(seconds, 0))

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)
