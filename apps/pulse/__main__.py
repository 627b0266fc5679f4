"""python -m apps.pulse serve|worker|seed|demo"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import suppress

from trueup import ConfigError, TrueupError
from trueup.observe.lines import configure_logging
from trueup.web.guard import Rules, check_bind, rules_for

from .config import Config
from .seed import Size, fill
from .service import Service, build


def main(arguments: list[str] | None = None) -> int:
    """0 when all went well, 1 when something failed, 2 when it is not configured."""
    options = _parse(arguments)
    try:
        if options.command == "serve":
            check_bind(options.host, Rules.from_environment())
        if options.command == "demo":
            from .demo import demo

            return demo(options.seconds, options.workers)
        service = build(Config.from_environment())
        for logger_name in ("trueup", "pulse"):
            configure_logging(service.app.settings, logger_name=logger_name)
        if options.command == "serve":
            with suppress(KeyboardInterrupt):  # it has stopped in order by then
                return asyncio.run(_serve(service, options.host, options.port, embedded_worker=options.worker))
            return 0
        if options.command == "worker":
            return asyncio.run(_work(service))
        return asyncio.run(_seed(service, Size(options.projects, options.reports, options.users)))
    except ConfigError as error:
        print(f"pulse: {error}", file=sys.stderr)
        return 2
    except TrueupError as error:
        print(f"pulse: {error}", file=sys.stderr)
        return 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m apps.pulse", description="Cron jobs of projects, on trueup.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API")
    serve.add_argument("--worker", action="store_true", help="run the jobs in this process, too")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8080)
    commands.add_parser("worker", help="run the jobs at their times")
    seed = commands.add_parser("seed", help="make up projects, reports that are due, checkpoints, users and messages")
    seed.add_argument("--projects", type=_count, default=Size.projects)
    seed.add_argument("--reports", type=_count, default=Size.reports)
    seed.add_argument("--users", type=_count, default=Size.users)
    demo = commands.add_parser(
        "demo", help="all of it on this machine for a while, with faults, and the books at the end"
    )
    demo.add_argument("--seconds", type=_count, default=60)
    demo.add_argument("--workers", type=_count, default=3)
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 to 100000 is needed")
    return int(text)


async def _serve(service: Service, host: str, port: int, *, embedded_worker: bool) -> int:
    from trueup.web.serving import Server

    from .api import make_api

    await service.prepare()  # what is wrong is told before anything is served
    api = make_api(service, embedded_worker=embedded_worker)
    return await Server("pulse", api, service.down, rules_for(host), host, port).run_until_stopped()


async def _work(service: Service) -> int:
    await service.prepare()
    worker = service.app.worker()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.request_stop)
    try:
        await worker.run()
    finally:
        await service.close()
    return 0


async def _seed(service: Service, size: Size) -> int:
    await service.prepare()
    async with service.app.transaction() as tx:
        await fill(tx, size)
    await service.close()
    print(f"{size.projects} projects, {size.reports} reports that are due, {size.users} users")
    return 0


if __name__ == "__main__":
    sys.exit(main())
