"""What a contestant written in Python does in its process: set up, enqueue, drain, pick up, idle. The standard library alone.

It is started with a database, its settings, a kind of work and a count, and answers in lines of JSON on its standard output.
`with_graphile.mjs` says the same lines. A worker runs until the standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

CALLERS = 100  # that enqueue at the same time, as the requests of a web server do
SETTLE = 1.0  # seconds for a worker to come to rest before it is given one job at a time
PAUSE = 0.005  # between two of those: it has gone back to waiting
URGENT = 50  # jobs of high priority behind a backlog

Handle = Callable[[int], None]
"""What a job's function calls with the job's number: all that the job does."""


class Producer(ABC):
    @abstractmethod
    async def one(self, number: int) -> None:
        """Enqueue one job; it is committed afterwards."""

    @abstractmethod
    async def urgent(self, number: int) -> None:
        """Enqueue one job that goes before all that have no priority."""

    @abstractmethod
    async def many(self, numbers: Iterable[int]) -> None:
        """Enqueue them all, the fastest way there is; they are committed afterwards."""


class JobQueue(ABC):
    def __init__(self, url: str, settings: dict[str, Any]) -> None:
        self.url = url
        self.settings = settings

    @abstractmethod
    async def set_up(self) -> None:
        """Make its tables."""

    @abstractmethod
    def producer(self, callers: int = 1) -> AbstractAsyncContextManager[Producer]:
        """Connected, and able to enqueue: for so many callers at a time."""

    @abstractmethod
    def worker(self, handle: Handle) -> AbstractAsyncContextManager[None]:
        """A worker that runs."""


class Seen:
    """Which jobs ran: a number that is missing or came twice is found."""

    def __init__(self, count: int) -> None:
        self.all = asyncio.Event()
        self.ran = 0
        self._count = count
        self._ticked = bytearray(count)

    def __call__(self, number: int) -> None:
        self._ticked[number] = 1
        self.ran += 1
        if self.ran == self._count:
            self.all.set()

    @property
    def different(self) -> int:
        return sum(self._ticked)


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def asked_to_end() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def set_up(queue: JobQueue, _: int) -> None:
    await queue.set_up()


async def enqueue_many(queue: JobQueue, count: int) -> None:
    async with queue.producer() as producer:
        started = time.perf_counter()
        await producer.many(range(count))
        say(seconds=time.perf_counter() - started)


async def enqueue_one_by_one(queue: JobQueue, count: int) -> None:
    async with queue.producer() as producer:
        started = time.perf_counter()
        for number in range(count):
            await producer.one(number)
        say(seconds=time.perf_counter() - started)


async def enqueue_by_many_callers(queue: JobQueue, count: int) -> None:
    async with queue.producer(CALLERS) as producer:
        numbers = iter(range(count))

        async def call() -> None:
            for number in numbers:
                await producer.one(number)

        started = time.perf_counter()
        await asyncio.gather(*(call() for _ in range(CALLERS)))
        say(seconds=time.perf_counter() - started)


async def drain(queue: JobQueue, count: int) -> None:
    """The process that reads the lines has the clock, and looks into the database for the end."""
    seen = Seen(count)
    say(starting=True)
    async with queue.worker(seen):
        await seen.all.wait()
        say(all_ran=True)
        await asked_to_end()
    say(ran=seen.ran, different=seen.different)


async def pick_up(queue: JobQueue, count: int) -> None:
    """Milliseconds from calling enqueue to the first line of the job, with an idle worker in the same process."""
    taken: list[float] = []
    arrived = asyncio.Event()
    sent = 0.0

    def handle(_: int) -> None:
        taken.append((time.perf_counter() - sent) * 1000)
        arrived.set()

    async with queue.producer() as producer, queue.worker(handle):
        await asyncio.sleep(SETTLE)
        for number in range(count):
            arrived.clear()
            sent = time.perf_counter()
            await producer.one(number)
            await arrived.wait()
            await asyncio.sleep(PAUSE)
    say(milliseconds=taken)


async def urgent(queue: JobQueue, backlog: int) -> None:
    """The same for jobs of high priority while so many others wait. Those are numbered from 0, the urgent ones backwards from -1."""
    taken: list[float] = []
    arrived, begun = asyncio.Event(), asyncio.Event()
    sent = 0.0
    left = backlog

    def handle(number: int) -> None:
        nonlocal left
        if number < 0:
            taken.append((time.perf_counter() - sent) * 1000)
            arrived.set()
        else:
            left -= 1
            begun.set()

    async with queue.producer() as producer, queue.worker(handle):
        await begun.wait()
        while left and len(taken) < URGENT:
            arrived.clear()
            sent = time.perf_counter()
            await producer.urgent(-1 - len(taken))
            await arrived.wait()
            await asyncio.sleep(PAUSE)
    say(milliseconds=taken)


async def idle(queue: JobQueue, _: int) -> None:
    seen = Seen(1)
    async with queue.worker(seen):
        say(starting=True)
        await asked_to_end()
    say(ran=seen.ran)


WORK: dict[str, Callable[[JobQueue, int], Coroutine[Any, Any, None]]] = {
    "set up": set_up,
    "bulk enqueue": enqueue_many,
    "one-by-one enqueue": enqueue_one_by_one,
    "enqueue by 100 callers": enqueue_by_many_callers,
    "drain": drain,
    "pick-up": pick_up,
    "urgent": urgent,
    "idle": idle,
}


def perform(queue: type[JobQueue]) -> None:
    """Do what the command line asks for."""
    import uvloop  # every contestant in Python runs on the same loop, unless its settings say otherwise

    url, given, work, count = sys.argv[1:]
    settings = json.loads(given)
    run = asyncio.run if settings.pop("loop", None) == "asyncio" else uvloop.run
    run(WORK[work](queue(url, settings), int(count)))
