"""python -m apps.payments serve|migrate|demo"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress
from functools import partial

from trueup import ConfigError, TrueupError
from trueup.observe.lines import configure_logging
from trueup.web.guard import Rules, check_bind, rules_for

from . import migrate
from .config import Config
from .service import Service, build


def main(arguments: list[str] | None = None) -> int:
    """0 when all went well, 1 when something failed, 2 when it is not configured."""
    options = _parse(arguments)
    try:
        if options.command == "serve":
            check_bind(options.host, Rules.from_environment())
        if options.command == "demo":
            from .demo import run

            return run(options.seconds, options.requests)
        service = build(Config.from_environment())
        for logger_name in ("trueup", "payments"):
            configure_logging(service.app.settings, logger_name=logger_name)
        if options.command == "migrate":
            return asyncio.run(_migrate(service, options.to))
        with suppress(KeyboardInterrupt):  # it has stopped in order by then
            return asyncio.run(_serve(service, options.host, options.port))
        return 0
    except ConfigError as error:
        print(f"payments: {error}", file=sys.stderr)
        return 2
    except TrueupError as error:
        print(f"payments: {error}", file=sys.stderr)
        return 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m apps.payments", description="Payment requests, on trueup.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8080)
    step = commands.add_parser("migrate", help="bring the tables to a version")
    step.add_argument("--to", type=int, default=migrate.LATEST, choices=range(migrate.LATEST + 1))
    demo = commands.add_parser("demo", help="a chain, replicas, payments of all kinds, and the proof that all is well")
    demo.add_argument("--seconds", type=int, default=60, help="for how long there are payments")
    demo.add_argument("--requests", type=int, default=200)
    return parser.parse_args(arguments)


async def _serve(service: Service, host: str, port: int) -> int:
    from apps.serving import database_down
    from trueup.web.serving import Server

    from .api import make_api

    await service.prepare()  # what is wrong is told before anything is served
    api = make_api(service, embedded_worker=service.config.enabled)
    down = partial(database_down, service.app)
    return await Server("payments", api, down, rules_for(host), host, port).run_until_stopped()


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
