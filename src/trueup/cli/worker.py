"""`trueup worker`: a process that runs jobs until a signal stops it.

The first SIGTERM or SIGINT lets running jobs end within `drain_for`, the second hands them back at once, and a third ends
the process like any other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from trueup.cli import completing
from trueup.cli.errors import WRONG
from trueup.cli.options import option, switch, with_session
from trueup.cli.session import Session
from trueup.cli.systemd import Systemd, without_systemd
from trueup.clock import elapsed
from trueup.errors import ConfigError

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.work.worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CALLS = "trueup to_thread"  # what the names of the threads that run `asyncio.to_thread` begin with
IDLE_WITHIN = 0.5  # seconds until such a thread that runs nothing has ended


@with_session
def worker(
    session: Session,
    queue: Annotated[
        list[str] | None,
        option(
            "--queue -q",
            "NAME[=N]",
            "Serve this queue, N jobs at a time. May be repeated.",
            autocompletion=completing.queues,
        ),
    ] = None,
    concurrency: Annotated[
        int | None, option("--concurrency -c", "N", "Maximum number of jobs at a time.", min=1, max=10_000)
    ] = None,
    migrate: Annotated[bool, switch("--migrate", "Apply pending migrations first.")] = False,
    health_port: Annotated[
        int | None, option("--health-port", "PORT", "Answer /healthz, /readyz and /metrics.", min=1, max=65_535)
    ] = None,
    health_host: Annotated[
        str | None, option("--health-host", "ADDRESS", "Answer them at this address instead of 127.0.0.1.")
    ] = None,
    processes: Annotated[
        int | None,
        option(
            "--processes", "N", "Run N workers, each in its own process, and restart those that die.", min=1, max=1_000
        ),
    ] = None,
    reload: Annotated[
        bool, switch("--reload", "For development: restart when a Python file below this directory changes.")
    ] = False,
    child: Annotated[str | None, typer.Option("--child", hidden=True)] = None,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C.

    A second signal stops immediately: running jobs are handed back to be run again. Exits with 0 when every job has ended or was handed back, with 1 when a handler ignored its cancellation.
    """
    from trueup.observe.lines import configure_logging

    queues = _queues(queue)
    serving = {"health_port": health_port, "health_host": health_host}
    if child is None and (processes is not None or reload):
        raise typer.Exit(_supervise(session, queue or [], concurrency, migrate, processes or 1, reload, serving))
    app = session.app_with_jobs()
    app.settings = dataclasses.replace(app.settings, **{name: value for name, value in serving.items() if value})  # type: ignore[arg-type]
    place, parent = (int(number) for number in child.split(":")) if child else (0, None)
    for port in ("metrics_port", "health_port"):  # one for each process
        if (first := getattr(app.settings, port)) is not None:
            app.settings = dataclasses.replace(app.settings, **{port: first + place})
    configure_logging(dataclasses.replace(app.settings, log_format="json") if session.json else app.settings)
    app.logs.refresh()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_work(app, queues, concurrency, migrate, parent))


def _supervise(
    session: Session,
    queues: list[str],
    concurrency: int | None,
    migrate: bool,
    processes: int,
    reload: bool,
    serving: Mapping[str, object],
) -> int:
    from trueup.cli.supervising import Supervisor
    from trueup.config import load_settings
    from trueup.events import Events
    from trueup.observe.lines import configure_logging
    from trueup.observe.logs import attach_logs

    given = {"app": session.app_place, "database_url": session.database_url, "schema": session.schema}
    settings = load_settings(overrides=given, options=True)
    configure_logging(dataclasses.replace(settings, log_format="json") if session.json else settings)
    events = Events()
    attach_logs(events)
    arguments = ["worker", *(["--json"] if session.json else []), *(["--migrate"] if migrate else [])]
    arguments += [part for queue in queues for part in ("--queue", queue)]
    arguments += [] if concurrency is None else ["--concurrency", str(concurrency)]
    for name, value in serving.items():
        arguments += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    # As variables: a password in an argument could be read by other users of the machine.
    environment = {
        **without_systemd(os.environ),
        **{f"TRUEUP_{name.upper()}": value for name, value in given.items() if value},
    }

    async def run() -> int:
        systemd = Systemd.of(os.environ)
        supervisor = Supervisor(arguments, environment, processes, reload=reload, events=events, systemd=systemd)
        return await supervisor.run()

    return asyncio.run(run())


async def _work(
    app: App, queues: Mapping[str, int | None] | None, concurrency: int | None, migrate: bool, parent: int | None
) -> None:
    from trueup.work.starting import patiently

    watchdog: asyncio.Task[None] | None = None
    executor = ThreadPoolExecutor(thread_name_prefix=CALLS)
    asyncio.get_running_loop().set_default_executor(executor)
    try:
        store = await patiently(app.open, app.settings.start_within, app.events)
        if migrate:
            await asyncio.to_thread(store.migrate)
        worker = app.worker(queues=queues, concurrency=concurrency)
        worker.process_ends = True
        _stop_on_signals(worker)
        if parent is not None:
            _stop_without(parent, worker)
        elif (systemd := Systemd.of(os.environ)) is not None:
            _tell(systemd, app, worker)
            watchdog = asyncio.create_task(systemd.watch(worker.why_not_alive))
        stopped = await worker.run()
    finally:
        await app.close()
        if watchdog is not None:
            watchdog.cancel()
    if stopped.abandoned or worker.runner.caller.threads_busy or _is_busy(executor):
        _leave_them_behind(WRONG if stopped.abandoned else 0)


def _tell(systemd: Systemd, app: App, worker: Worker) -> None:
    from trueup.events import Event, WorkerStarted, WorkerStopping

    def told(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            systemd.ready(f"worker {event.holder} takes jobs")
        elif isinstance(event, WorkerStopping):
            systemd.stopping()

    app.events.subscribe(told)


def _stop_on_signals(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    seen = 0

    def stop() -> None:
        nonlocal seen
        seen += 1
        worker.request_stop()
        if seen == 2:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop)


def _stop_without(parent: int, worker: Worker) -> None:
    """Stop in order when the parent has died. Nothing is ever written to this pipe, so its only event is its end."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(parent)
        worker.request_stop()

    loop.add_reader(parent, ended)


def _is_busy(executor: ThreadPoolExecutor) -> bool:
    """Close the event loop's executor. Returns whether a call of `asyncio.to_thread` is under way that a handler has begun."""
    executor.shutdown(wait=False, cancel_futures=True)
    until = elapsed() + IDLE_WITHIN
    threads = [each for each in threading.enumerate() if each.name.startswith(CALLS)]
    for each in threads:
        each.join(max(until - elapsed(), 0.0))
    return any(each.is_alive() for each in threads)


def _leave_them_behind(code: int) -> NoReturn:
    """End the process although a handler still runs: closing the loop, or Python's own exit, could wait for it forever."""
    for handler in logging.getLogger("trueup").handlers:
        handler.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _queues(given: list[str] | None) -> Mapping[str, int | None] | None:
    from trueup.config import SETTINGS

    if not given:
        return None
    try:
        queues: Mapping[str, int | None] = SETTINGS["queues"].kind.read(given)
    except ConfigError as error:
        raise ConfigError(f"--queue: {error}") from None
    return queues


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
