"""One `main` for an application that is run as processes: what its commands end with, how its worker stops, how its API is served.

    MAIN = Main("payments")

    def main(arguments: list[str] | None = None) -> int:
        options = parse(arguments)
        if options.command == "worker":
            return MAIN.run(lambda: MAIN.work(build))
        return MAIN.run(lambda: MAIN.serve(build, make_api, options.host, options.port))

`build` makes the application from the environment and raises ConfigError when it cannot. The exit status is 0 when all went well,
1 when something failed, 2 when it is not configured, and 130 when Ctrl-C ended a command that does not stop in order; 143 when
SIGTERM did, and 129 when its terminal was closed. What went wrong is one line on standard error that begins with the application's
name. Log lines are those of `trueup worker`.

`Main.serve` needs uvicorn; the rest needs no package.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from re import Pattern
from typing import Any, Protocol, TypeVar

from trueup.app import App
from trueup.config import load_settings
from trueup.config.settings import DEFAULT
from trueup.errors import ConfigError, TrueupError
from trueup.observe.lines import configure_logging
from trueup.observe.logs import LOGGER
from trueup.web.guard import Application, rules_for
from trueup.work.worker import Worker

FAILED, NOT_CONFIGURED, SIGNALLED = 1, 2, 128
SIGNALS = (signal.SIGTERM, signal.SIGINT)

Command = Callable[[], int | Coroutine[Any, Any, int]]


class Service(Protocol):
    """The parts of an application that its process needs."""

    @property
    def app(self) -> App: ...

    async def prepare(self) -> None:
        """Before anything is served or claimed. Raises ConfigError for what people have to put right first."""

    async def down(self) -> Mapping[str, str]:
        """Unreachable dependencies by name, with the reason; for /readyz."""

    async def close(self) -> None:
        """Called at the end, also after a failed start."""


S = TypeVar("S", bound=Service)
N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Main:
    """`name` is the application's: its logger is called so. `failures`: its own errors, which are logged in a line without a stack."""

    name: str
    failures: tuple[type[Exception], ...] = ()

    def run(self, command: Command) -> int:
        """Run a command, and return the status that the process is to exit with."""
        expected: tuple[type[Exception], ...] = (TrueupError, *self.failures)
        ended_by = [signal.SIGINT]
        try:
            with _as_ctrl_c(ended_by):
                outcome = command()
                return asyncio.run(outcome) if inspect.iscoroutine(outcome) else outcome  # type: ignore[return-value]
        except KeyboardInterrupt:
            return SIGNALLED + ended_by[-1]
        except ConfigError as error:
            return self._tell(error, NOT_CONFIGURED)
        except expected as error:
            return self._tell(error, FAILED)

    def _tell(self, error: Exception, status: int) -> int:
        print(f"{self.name}: {error}", file=sys.stderr)
        return status

    def add_bind(self, parser: argparse.ArgumentParser, port: int = 8080) -> None:
        """The options of a command that serves: `--host` and `--port`."""
        parser.add_argument(
            "--host", default="127.0.0.1", help="the address to listen on; other than loopback needs HTTP_TOKEN"
        )
        parser.add_argument("--port", type=between(0, 65_535), default=port, help="0 picks a free port")

    def built(self, build: Callable[[], S]) -> S:
        """The application, whose log lines go to standard error."""
        service = build()
        for logger_name in (LOGGER, self.name):
            configure_logging(service.app.settings, logger_name=logger_name)
        return service

    async def once(self, build: Callable[[], S], command: Callable[[S], Awaitable[int]]) -> int:
        """Run a command that does something and ends. The application is prepared before it, and closed after it."""
        service = self.built(build)
        try:
            await service.prepare()
            return await command(service)
        finally:
            await service.close()

    async def work(
        self,
        build: Callable[[], S],
        *,
        worker: Callable[[S], Worker] | None = None,
        around: Callable[[S], AbstractAsyncContextManager[object]] = lambda _: nullcontext(),
    ) -> int:
        """A worker until SIGTERM or SIGINT; a second one does not wait for what runs. `around` it other things may run."""

        async def run(service: S) -> int:
            working = service.app.worker() if worker is None else worker(service)
            with on_signals(working.request_stop):
                async with around(service):
                    stopped = await working.run()
            return FAILED if stopped.abandoned else 0

        return await self.once(build, run)

    async def serve(
        self,
        build: Callable[[], S],
        make_api: Callable[[S], Application],
        host: str,
        port: int,
        *,
        streamed: Pattern[str] | None = None,
        while_listening: Callable[[S], AbstractAsyncContextManager[object]] = lambda _: nullcontext(),
    ) -> int:
        """The API until SIGTERM or SIGINT: guarded by `trueup.web.guard`, with /healthz and /readyz in front.

        The application is closed at the end, also if nothing could be served; an API that closes it, too, as one does that is served
        otherwise, does no harm. `while_listening` is entered once requests are answered, and left before they no longer are.
        """
        from trueup.web.serving import Server

        rules = rules_for(host, streamed=streamed)  # whether others may reach it is judged first
        service = self.built(build)
        try:
            await service.prepare()  # errors come before anything is served
            meanwhile = while_listening(service)
            server = Server(self.name, make_api(service), service.down, rules, host, port, while_listening=meanwhile)
            return await server.run_until_stopped()
        finally:
            await service.close()


def between(low: N, high: N) -> Callable[[str], N]:
    """For `type=` of an option: a number from `low` to `high`, whole if they are."""

    def parse(text: str) -> N:
        with suppress(ValueError):
            if low <= (number := type(low)(text)) <= high:
                return number
        kind = "a whole number" if isinstance(low, int) else "a number"
        raise argparse.ArgumentTypeError(f"{text!r}: {kind} from {low} to {high} is needed")

    return parse


@contextmanager
def _as_ctrl_c(came: list[signal.Signals]) -> Iterator[None]:
    """SIGTERM and a closed terminal interrupt as Ctrl-C does: what a command has started, it ends. `came` is which of them did."""

    def interrupt(number: int, _: object) -> None:
        came.append(signal.Signals(number))
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so is Ctrl-C for what a script runs in the background
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    main = threading.current_thread() is threading.main_thread()
    # Not those that are ignored (nohup), or that the program handles itself.
    ours = [each for each in (signal.SIGTERM, signal.SIGHUP) if main and signal.getsignal(each) is signal.SIG_DFL]
    try:
        for each in ours:
            signal.signal(each, interrupt)
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


@contextmanager
def on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`, each time."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def own_app(name: str, *, tables: str | None = None, **settings: Any) -> App:
    """An App that shares nothing with other applications in the same directory or database, unless that is configured.

    Its embedded PostgreSQL is in `.trueup/<name>`, trueup's tables are in the schema `trueup_<name>`, and the application's own
    in the schema `tables`, or else `<name>`, which `trueup.web.database.prepare_database` makes.
    """
    found = load_settings(overrides=settings)
    own: dict[str, Any] = {"data_dir": found.data_dir / name, "schema": f"trueup_{name}", "search_path": tables or name}
    chosen = {each for each, source in found.sources.items() if source != DEFAULT}
    return App(**settings, **{each: value for each, value in own.items() if each not in chosen})


async def database_down(app: App) -> dict[str, str]:
    """`down` for an application that depends only on its database."""
    try:
        async with app.transaction() as tx:
            await tx.execute("select 1")
    except Exception as error:
        return {"database": type(error).__name__}
    return {}
