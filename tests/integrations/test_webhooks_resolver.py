"""Names that never answer cost their own deliveries time, and no others."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.sink import Sink
from tests.support.waiting import wait_until
from trueup.integrations.webhooks import DeliveryFailed, Webhook, resolver
from trueup.integrations.webhooks.resolver import FAILED_FOR, MAX_LOOKUPS, OVERDUE_AFTER, Resolver

HERE = [ip_address("127.0.0.1")]
ROOT = Path(__file__).parents[2]


class Names:
    """Stands in for the system's resolver: dead names block until the end, `gone` ones fail, others are this machine."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.over = threading.Event()

    def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        if host.startswith("dead"):
            self.over.wait()
        if host.startswith(("gone", "dead")):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ["127.0.0.1", "127.0.0.1"]

    def getaddrinfo(self, host: str, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in self(host)]


@pytest.fixture
def names() -> Iterator[Names]:
    names = Names()
    yield names
    names.over.set()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def all_ended(tasks: list[asyncio.Task[Any]]) -> list[BaseException]:
    for task in tasks:
        task.cancel()
    return [error for error in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(error, BaseException)]


@pytest.mark.asyncio
@pytest.mark.parametrize("dead", [1, 40, 400])
async def test_dead_names_delay_no_delivery_to_a_living_one(
    dead: int, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    async with Sink() as sink:
        waiting = [
            asyncio.create_task(Webhook(f"http://dead{n}.example/", timeout="1m").deliver({}, key="k"))
            for n in range(dead)
        ]
        await asyncio.sleep(0)
        hook = Webhook(f"http://living.example:{sink.port}/", allow=["127.0.0.1"], timeout="1m")
        async with asyncio.timeout(OVERDUE_AFTER / 2):
            assert (await hook.deliver({}, key="k")).status == 200
            assert await asyncio.to_thread(lambda: "the loop's own threads are free") != ""
        assert not any(task.done() for task in waiting)
        await all_ended(waiting)
    assert len(names.asked) == dead + 1


@pytest.mark.asyncio
async def test_a_name_that_was_resolved_before_finds_room_however_many_others_hang(names: Names) -> None:
    found = Resolver(names, most=16)
    assert await found.addresses("living.example") == HERE
    waiting = [asyncio.create_task(found.addresses(f"dead{n}.example")) for n in range(1000)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(found.addresses("LIVING.example"), OVERDUE_AFTER / 2) == HERE
    assert len(names.asked) == 2 + 14, "the total is bounded, with some room kept"
    await all_ended(waiting)


@pytest.mark.asyncio
async def test_names_that_failed_before_leave_room_for_new_ones(names: Names) -> None:
    clock = Clock()
    found = Resolver(names, most=16, clock=clock)
    for n in range(100):
        with pytest.raises(OSError, match="not known"):
            await found.addresses(f"gone{n}.example")
    clock.now += FAILED_FOR
    names.asked.clear()
    hanging = Names()
    found._lookup = lambda host: hanging("dead" if host.startswith("gone") else host)
    waiting = [asyncio.create_task(found.addresses(f"gone{n}.example")) for n in range(100)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(found.addresses("new.example"), OVERDUE_AFTER / 2) == HERE
    assert hanging.asked == ["dead"] * 4 + ["new.example"]
    hanging.over.set()
    await all_ended(waiting)


@pytest.mark.asyncio
async def test_a_name_is_looked_up_once_at_a_time_for_all_who_ask(names: Names) -> None:
    found = Resolver(names)
    waiting = [asyncio.create_task(found.addresses("dead.example")) for _ in range(50)]
    await asyncio.sleep(0)
    await all_ended(waiting[:20])
    names.over.set()
    for task in waiting[20:]:
        with pytest.raises(OSError, match="not known"):
            await task
    assert names.asked == ["dead.example"]


@pytest.mark.asyncio
async def test_a_lookup_that_is_overdue_is_neither_waited_for_nor_repeated(names: Names) -> None:
    clock = Clock()
    found = Resolver(names, clock=clock)
    first = asyncio.create_task(found.addresses("dead.example"))
    await asyncio.sleep(0)
    clock.now += OVERDUE_AFTER + 1
    for _ in range(3):
        with pytest.raises(OSError, match="has not answered for 9 s"):
            await found.addresses("dead.example")
    assert names.asked == ["dead.example"]
    await all_ended([first])


@pytest.mark.asyncio
async def test_a_lookup_has_a_deadline_of_its_own(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "OVERDUE_AFTER", 0.05)
    monkeypatch.setattr(resolver, "SHARED", Resolver(names))
    with pytest.raises(
        DeliveryFailed, match=r"dead\.example cannot be resolved: the resolver has not answered for 0 s"
    ):
        await Webhook("http://dead.example/", timeout="1h").deliver({}, key="k")


@pytest.mark.asyncio
async def test_a_failure_is_remembered_for_seconds_and_then_tried_again(names: Names) -> None:
    clock = Clock()
    found = Resolver(names, clock=clock)
    for _ in range(5):
        with pytest.raises(OSError, match="Name or service not known"):
            await found.addresses("gone.example")
    assert names.asked == ["gone.example"]
    clock.now += FAILED_FOR
    found._lookup = lambda _: ["127.0.0.1"]
    for _ in range(2):
        assert await found.addresses("gone.example") == HERE, "repaired names work again"


@pytest.mark.asyncio
async def test_what_is_remembered_is_bounded(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "MAX_NAMES", 10)
    found = Resolver(names)
    for n in range(30):
        await found.addresses(f"{n}.example")
    assert list(found._ended) == [f"{n}.example" for n in range(20, 30)]
    assert not found._under_way


@pytest.mark.asyncio
@pytest.mark.parametrize("literal", ["127.0.0.1", "::1", "2606:4700::1111"])
async def test_an_address_needs_no_lookup(literal: str, names: Names) -> None:
    assert await Resolver(names).addresses(literal) == [ip_address(literal)]
    assert names.asked == []


@pytest.mark.asyncio
async def test_a_lookup_for_which_no_caller_waits_any_more_is_not_begun(names: Names) -> None:
    found = Resolver(names, most=1)
    waiting = [asyncio.create_task(found.addresses(f"dead{n}.example")) for n in range(3)]
    await asyncio.sleep(0)
    await all_ended(waiting[1:])
    names.over.set()
    with pytest.raises(OSError):
        await waiting[0]
    assert await found.addresses("living.example") == HERE
    assert names.asked == ["dead0.example", "living.example"]


@pytest.mark.asyncio
async def test_without_a_thread_left_the_delivery_fails_and_the_next_one_may_work(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Resolver(names)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="can't start new thread"):
            await found.addresses("living.example")
    assert await found.addresses("living.example") == HERE


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [[], ["nonsense"], None])
async def test_an_answer_without_sense_is_a_failure_and_gives_its_place_back(answer: Any) -> None:
    found = Resolver(lambda _: answer, most=1)
    for n in range(3):
        with pytest.raises(OSError):
            await found.addresses(f"{n}.example")


def test_a_forked_child_resolves_although_its_parent_was_looking_the_name_up(names: Names) -> None:
    """The parent's threads are not in the child; neither must be what they were at."""

    async def in_parent() -> int:
        waiting = asyncio.create_task(resolver.SHARED.addresses("dead.example"))
        await asyncio.sleep(0)
        child = os.fork()
        if child == 0:
            os._exit(0 if not resolver.SHARED._under_way else 1)
        await all_ended([waiting])
        return os.waitpid(child, 0)[1]

    resolver.SHARED._lookup = names
    assert asyncio.run(in_parent()) == 0


def test_a_process_ends_although_lookups_hang() -> None:
    script = """
import asyncio, time
from trueup.integrations.webhooks.resolver import Resolver
async def main():
    found = Resolver(lambda _: time.sleep(600))
    try:
        await asyncio.wait_for(asyncio.gather(*(found.addresses(f"{n}.example") for n in range(20))), 0.1)
    except TimeoutError:
        pass
asyncio.run(main())
"""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert time.monotonic() - started < 60


@pytest.mark.slow
def test_a_name_server_that_does_not_answer_for_some_names_stops_no_others() -> None:
    """With the system's own resolver, and a name server that is silent about most names."""
    private = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    dead = str(MAX_LOOKUPS // 2)
    done = subprocess.run(
        [*private, sys.executable, "-m", "tests.integrations.silent_dns", dead],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1:] == [f"delivered beside {dead} dead names"], done.stderr


def test_the_names_of_threads_say_what_they_are_for(names: Names) -> None:
    async def look() -> None:
        waiting = asyncio.create_task(Resolver(names).addresses("dead.example"))
        await asyncio.sleep(0)
        found = [thread for thread in threading.enumerate() if thread.name == "trueup resolver"]
        assert found
        assert all(thread.daemon for thread in found)
        await all_ended([waiting])

    asyncio.run(look())
    names.over.set()
    wait_until(lambda: not any(thread.name == "trueup resolver" for thread in threading.enumerate()), "they have ended")
