"""python -m apps.pulse serve|worker|seed|demo"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any

from trueup.web.service import Main, between

from .seed import Size, fill
from .service import Service, build_configured

MAIN = Main("pulse")
COUNT = between(1, 100_000)


def main(arguments: list[str] | None = None) -> int:
    return MAIN.run(lambda: _command(_parse(arguments)))


def _command(options: argparse.Namespace) -> int | Coroutine[Any, Any, int]:
    match options.command:
        case "serve":
            return MAIN.serve(build_configured, partial(_api, options.worker), options.host, options.port)
        case "worker":
            return MAIN.work(build_configured)
        case "seed":
            return MAIN.once(build_configured, partial(_seed, Size(options.projects, options.reports, options.users)))
        case _:
            from .demo import demo

            return demo(options.seconds, options.workers)


def _api(embedded_worker: bool, service: Service) -> Any:
    from .api import make_api  # only the API needs FastAPI

    return make_api(service, embedded_worker=embedded_worker)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m apps.pulse", description="Cron jobs of projects, on trueup.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API")
    serve.add_argument("--worker", action="store_true", help="run the jobs in this process, too")
    MAIN.add_bind(serve)
    commands.add_parser("worker", help="run the jobs at their times")
    seed = commands.add_parser("seed", help="make up projects, reports that are due, checkpoints, users and messages")
    seed.add_argument("--projects", type=COUNT, default=Size.projects)
    seed.add_argument("--reports", type=COUNT, default=Size.reports)
    seed.add_argument("--users", type=COUNT, default=Size.users)
    demo = commands.add_parser(
        "demo", help="all of it on this machine for a while, with faults, and the books at the end"
    )
    demo.add_argument("--seconds", type=COUNT, default=60)
    demo.add_argument("--workers", type=COUNT, default=3)
    return parser.parse_args(arguments)


async def _seed(size: Size, service: Service) -> int:
    async with service.app.transaction() as tx:
        await fill(tx, size)
    print(f"{size.projects} projects, {size.reports} reports that are due, {size.users} users")
    return 0


if __name__ == "__main__":
    sys.exit(main())
