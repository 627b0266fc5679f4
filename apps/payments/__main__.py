"""python -m apps.payments serve|migrate|demo"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Coroutine
from typing import Any

from trueup.web.service import Main, between

from . import migrate
from .service import Service, build_configured

MAIN = Main("payments")


def main(arguments: list[str] | None = None) -> int:
    return MAIN.run(lambda: _command(_parse(arguments)))


def _command(options: argparse.Namespace) -> int | Coroutine[Any, Any, int]:
    match options.command:
        case "serve":
            return MAIN.serve(build_configured, _api, options.host, options.port)
        case "migrate":
            return _migrate(MAIN.built(build_configured), options.to)
        case _:
            from .demo import run

            return run(options.seconds, options.requests or max(200, 2 * options.seconds))


def _api(service: Service) -> Any:
    from .api import make_api  # only the API needs FastAPI

    return make_api(service, embedded_worker=service.config.enabled)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m apps.payments", description="Payment requests, on trueup.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API")
    MAIN.add_bind(serve)
    step = commands.add_parser("migrate", help="bring the tables to a version")
    step.add_argument("--to", type=int, default=migrate.LATEST, choices=range(migrate.LATEST + 1))
    demo = commands.add_parser("demo", help="a chain, replicas, payments of all kinds, and the proof that all is well")
    demo.add_argument("--seconds", type=between(1, 86_400), default=60, help="for how long there are payments")
    demo.add_argument(
        "--requests", type=between(1, 100_000), help="200 unless given, and two a second when it lasts longer"
    )
    return parser.parse_args(arguments)


async def _migrate(service: Service, to: int) -> int:
    try:
        async with service.app.transaction() as tx:
            taken = await migrate.migrate(tx, to)
    finally:
        await service.close()
    print("\n".join(taken) or f"the tables are at version {to} already")
    return 0


if __name__ == "__main__":
    sys.exit(main())
