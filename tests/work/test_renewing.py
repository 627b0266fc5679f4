"""What every renewer has in common: a thread that nothing but `stop` ends, and that `stop` always ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.support.proxy import Proxy
from tests.support.waiting import wait_until
from tests.support.watching import Watched
from trueup import App
from trueup.events import ServiceFailed
from trueup.store.store import Store
from trueup.work import renewing
from trueup.work.renewing import NOT_RENEWED, Renewing

SLEEP = b"select pg_sleep(60)"


class Sleeper(Renewing):
    """Its statement takes a minute."""

    def __init__(self, store: Store) -> None:
        super().__init__("sleeper", store.events, store.thread_connection("sleeper", timedelta(minutes=2)))
        self.sent = threading.Event()

    def run_once(self) -> float | None:
        assert self.connection is not None
        with self.connection.use() as connection:
            connection.execute(b"select 1")
            self.sent.set()
            try:
                connection.execute(SLEEP)
            except NOT_RENEWED:
                return None
        return 0.0


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with Proxy.before(database_url) as proxy:
        yield proxy


@pytest.mark.asyncio
@pytest.mark.parametrize("silent", [False, True], ids=["a slow statement", "a silent network"])
async def test_stop_ends_a_thread_that_waits_for_an_answer(proxy: Proxy, database_url: str, silent: bool) -> None:
    async with App(proxy.url(database_url)) as app:
        sleeper = Sleeper(app.store)
        sleeper.start()
        thread = sleeper._thread
        assert thread is not None
        await asyncio.to_thread(sleeper.sent.wait, 10)
        if silent:
            proxy.black_hole()
        await asyncio.to_thread(sleeper.stop)
        assert not thread.is_alive()
        proxy.heal()


def test_a_pass_that_fails_is_reported_and_the_thread_goes_on(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing, "RETRY_AFTER", 0.001)
    events, passes = Watched(app), list[int]()

    class Odd(Renewing):
        def run_once(self) -> float | None:
            passes.append(1)
            if len(passes) < 3:
                raise RuntimeError("odd")
            return None

    odd = Odd("odd", app.events)
    odd.start()
    thread = odd._thread
    assert thread is not None
    wait_until(lambda: not thread.is_alive(), "a pass with nothing left to renew ends the thread")
    assert len(passes) == 3
    assert [(event.service, event.error) for event in events.of(ServiceFailed)] == [("odd", "odd")] * 2


def test_stop_ends_a_thread_that_pauses(app: App) -> None:
    class Rare(Renewing):
        def run_once(self) -> float | None:
            return 60.0

    rare = Rare("rare", app.events)
    rare.start()
    thread = rare._thread
    assert thread is not None
    rare.stop()
    assert not thread.is_alive()
