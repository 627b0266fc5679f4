"""The processes of the demo: `python -m trueup.demo.processes NAME …`. None of them outlives the demo."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path

from trueup.demo import application
from trueup.demo.yesterday import UNWANTED, relive
from trueup.observe.lines import configure_logging

ANSWER_AFTER = 0.15  # seconds: so there is always a message that has arrived and whose sender does not know it yet


async def _work() -> None:
    service = application.build()
    for name in ("trueup", "birthdays"):
        configure_logging(service.app.settings, logger_name=name)
    await service.prepare()
    worker = service.app.worker()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.request_stop)
    try:
        async with service.watching_for_late():
            await worker.run()
    finally:
        await service.close()


def worker() -> None:
    """One worker of the application. Logs as JSON lines, stops in order on SIGTERM."""
    asyncio.run(_work())


def api(port: str) -> None:
    """The application's HTTP API, with a worker in the same process."""
    _serve(application.part("api").make_api(application.build(), embedded_worker=True), port)


def dashboard(port: str) -> None:
    """The dashboard over the demo's database."""
    from trueup.web.dashboard import asgi

    _serve(asgi({"birthdays": application.build().app}, closes=True), port, timeout_graceful_shutdown=1)


def receiver(port: str, journal: str) -> None:
    """The receiver of the messages, a third party's server."""
    sink = application.part("sink")
    received = sink.Sink(journal=Path(journal), unwanted=[UNWANTED])
    _serve(sink.make_sink(received, answer_after=ANSWER_AFTER), port, access_log=False)


def yesterday(hours: str, users: str) -> None:
    asyncio.run(relive(timedelta(hours=float(hours)), int(users)))


def _serve(made: object, port: str, **options: object) -> None:
    import uvicorn

    uvicorn.run(made, host="127.0.0.1", port=int(port), log_level="warning", **options)  # type: ignore[arg-type]


def _end_with_parent() -> None:
    """End this process, at once, when its standard input does: the process at the other end has gone, however that happened."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=wait, name="end with parent", daemon=True).start()


if __name__ == "__main__":
    _end_with_parent()
    name, *arguments = sys.argv[1:]
    {each.__name__: each for each in (worker, api, dashboard, receiver, yesterday)}[name](*arguments)
