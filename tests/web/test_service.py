"""One main for services: what a command ends with, what is told of it, and that nothing is left open."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support import ports
from trueup import App, ConfigError, NotFound
from trueup.web.service import Main, between, database_down, own_app


class OwnError(Exception):
    pass


MAIN = Main("shop", failures=(OwnError,))


class Shop:
    """A service that writes down what is done with it."""

    def __init__(self, url: str, *, wrong: Exception | None = None) -> None:
        self.app = App(url)
        self.seen: list[str] = []
        self._wrong = wrong

    async def prepare(self) -> None:
        self.seen.append("prepare")
        if self._wrong is not None:
            raise self._wrong

    async def down(self) -> dict[str, str]:
        return await database_down(self.app)

    async def close(self) -> None:
        self.seen.append("close")
        await self.app.close()


@pytest.fixture
def restored_signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def fail(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("command", "status", "told"),
    [
        (lambda: 0, 0, ""),
        (lambda: 3, 3, ""),
        (fail(ConfigError("PORT: a number is needed")), 2, "shop: PORT: a number is needed\n"),
        (fail(NotFound("there is no such job")), 1, "shop: there is no such job\n"),
        (fail(OwnError("the bucket is away")), 1, "shop: the bucket is away\n"),
        (fail(KeyboardInterrupt()), 130, ""),
    ],
    ids=["well", "its own status", "not configured", "trueup's error", "its own error", "Ctrl-C"],
)
@pytest.mark.parametrize("coroutine", [False, True], ids=["function", "coroutine"])
def test_a_command_ends_with_a_status_and_a_line(
    capsys: pytest.CaptureFixture[str], command: Callable[[], int], status: int, told: str, coroutine: bool
) -> None:
    async def awaited() -> int:
        return command()

    assert MAIN.run(awaited if coroutine else command) == status
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("coroutine", [False, True], ids=["function", "coroutine"])
@pytest.mark.parametrize(
    ("number", "in_background"),
    [
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGHUP, False),
        (signal.SIGTERM, True),
        (signal.SIGHUP, True),
    ],
)
def test_a_command_ends_what_it_has_started_whichever_signal_ends_it(
    number: signal.Signals, in_background: bool, coroutine: bool, restored_signals: None
) -> None:
    """A demo's workers are processes of their own: they would go on for ever. A script's shell ignores Ctrl-C for what it runs in
    the background."""
    if in_background:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended = []

    def command() -> int:
        try:
            os.kill(os.getpid(), number)
            return time.sleep(10) or 0
        finally:
            ended.append("what it has started")

    async def awaited() -> int:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(10)
            return 0
        finally:
            ended.append("what it has started")

    before = signal.getsignal(number)
    assert MAIN.run(awaited if coroutine else command) == 128 + number
    assert ended
    assert signal.getsignal(number) == before


def test_a_signal_that_is_ignored_stays_ignored(restored_signals: None) -> None:
    """As `nohup` wants it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert MAIN.run(lambda: os.kill(os.getpid(), signal.SIGHUP) or 0) == 0


def test_an_error_that_nobody_expected_keeps_its_stack() -> None:
    with pytest.raises(ZeroDivisionError):
        MAIN.run(lambda: 1 // 0)


@pytest.mark.parametrize("again", [False, True], ids=["one signal", "two signals"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_works_until_a_signal_and_is_closed_then(
    database_url: str, number: signal.Signals, again: bool
) -> None:
    shop = Shop(database_url)

    @asynccontextmanager
    async def around(service: Shop) -> AsyncIterator[None]:
        service.seen.append("around")
        for _ in range(2 if again else 1):
            os.kill(os.getpid(), number)
        yield
        service.seen.append("over")

    before = signal.getsignal(number)
    assert MAIN.run(lambda: MAIN.work(lambda: shop, around=around)) == 0
    assert shop.seen == ["prepare", "around", "over", "close"]
    assert signal.getsignal(number) == before, "signals are as they were"


async def nothing(_: Shop) -> int:
    return 0


@pytest.mark.parametrize(
    "command",
    [
        lambda build: MAIN.work(build),
        lambda build: MAIN.once(build, nothing),
        lambda build: MAIN.serve(build, lambda _: pytest.fail("it is not to be served"), "127.0.0.1", 0),
    ],
    ids=["work", "once", "serve"],
)
def test_what_cannot_be_prepared_is_closed(database_url: str, command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shop = Shop(database_url, wrong=ConfigError("no tables: run trueup migrate"))
    assert MAIN.run(lambda: command(lambda: shop)) == 2
    assert shop.seen == ["prepare", "close"]
    assert capsys.readouterr().err == "shop: no tables: run trueup migrate\n"


def test_a_server_that_others_could_reach_is_refused_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HTTP_TOKEN", raising=False)

    def build() -> Shop:
        pytest.fail("it is not to be built")

    assert MAIN.run(lambda: MAIN.serve(build, lambda _: pytest.fail("nor served"), "0.0.0.0", 0)) == 2
    assert "set HTTP_TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize("start", ["no port", "refused", "failed", "served"])
def test_a_server_is_closed_however_its_start_ends(database_url: str, start: str) -> None:
    """Tasks of the App's pool would keep the process alive, although it serves nothing."""
    shop = Shop(database_url)

    async def api(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "lifespan.startup"
        refused = {"type": "lifespan.startup.failed", "message": "not today"}
        await send(refused if start == "refused" else {"type": "lifespan.startup.complete"})

    @asynccontextmanager
    async def listening(service: Shop) -> AsyncIterator[None]:
        if start == "failed":
            raise OwnError("no sweeps")
        os.kill(os.getpid(), signal.SIGTERM)
        yield

    with ports.reserve() as taken:
        port = ports.number(taken) if start == "no port" else 0
        if start == "no port":
            taken.listen()
        status = MAIN.run(lambda: MAIN.serve(lambda: shop, lambda _: api, "127.0.0.1", port, while_listening=listening))
    assert (status, shop.seen) == (0 if start == "served" else 1, ["prepare", "close"])


def test_the_options_of_a_command_that_serves() -> None:
    parser = argparse.ArgumentParser()
    MAIN.add_bind(parser, 8081)
    assert vars(parser.parse_args([])) == {"host": "127.0.0.1", "port": 8081}
    assert parser.parse_args(["--port", "65535"]).port == 65535


@pytest.mark.parametrize(
    ("option", "given", "needed"),
    [
        ("--port", "65536", "a whole number from 0 to 65535"),
        ("--port", "-1", "a whole number from 0 to 65535"),
        ("--port", "http", "a whole number from 0 to 65535"),
        ("--part", "0.0", "a number from 0.5 to 1.0"),
        ("--part", "nan", "a number from 0.5 to 1.0"),
        ("--part", "inf", "a number from 0.5 to 1.0"),
    ],
)
def test_a_number_that_cannot_be_is_refused_in_words(
    capsys: pytest.CaptureFixture[str], option: str, given: str, needed: str
) -> None:
    parser = argparse.ArgumentParser()
    MAIN.add_bind(parser)
    parser.add_argument("--part", type=between(0.5, 1.0))
    with pytest.raises(SystemExit):
        parser.parse_args([option, given])
    assert capsys.readouterr().err.endswith(f"argument {option}: {given!r}: {needed} is needed\n")


def test_each_application_has_its_own_directory_and_schemas_unless_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TRUEUP_DATA_DIR", "TRUEUP_SCHEMA", "TRUEUP_SEARCH_PATH"):
        monkeypatch.delenv(name, raising=False)
    own = own_app("shop").settings
    assert own.data_dir.parts[-2:] == (".trueup", "shop")
    assert (own.schema, own.search_path) == ("trueup_shop", ("shop",))
    # What a person has chosen stays, also where it is what would have been the default.
    monkeypatch.setenv("TRUEUP_DATA_DIR", ".trueup")
    monkeypatch.setenv("TRUEUP_SCHEMA", "trueup")
    monkeypatch.setenv("TRUEUP_SEARCH_PATH", "role")
    chosen = own_app("shop").settings
    assert (chosen.data_dir.name, chosen.schema, chosen.search_path) == (".trueup", "trueup", ())
