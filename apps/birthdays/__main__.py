"""python -m apps.birthdays serve|worker|seed|sink"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from trueup import ConfigError
from trueup.web.guard import Rules, is_loopback
from trueup.web.service import Main, between

from . import people
from .seed import made_up
from .service import Service, build_configured

MAIN = Main("birthdays")


def main(arguments: list[str] | None = None) -> int:
    return MAIN.run(lambda: _command(_parse(arguments)))


def _command(options: argparse.Namespace) -> Coroutine[Any, Any, int]:
    match options.command:
        case "serve":
            return MAIN.serve(build_configured, partial(_api, options.worker), options.host, options.port)
        case "worker":
            return MAIN.work(build_configured, around=Service.watching_for_late)
        case "seed":
            ago = timedelta(hours=options.hours_ago)
            return MAIN.once(build_configured, partial(_seed, options.users, options.days, ago))
        case _:
            return _serve_sink(options.host, options.port, options.secret)


def _api(embedded_worker: bool, service: Service) -> Any:
    from .api import make_api  # only the API needs FastAPI

    return make_api(service, embedded_worker=embedded_worker)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m apps.birthdays", description="Birthday messages, on trueup.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API")
    serve.add_argument("--worker", action="store_true", help="send messages in this process, too")
    commands.add_parser("worker", help="send messages that are due")
    seed = commands.add_parser("seed", help="make up some users")
    seed.add_argument("--users", type=between(1, 1_000_000), default=2000, help="how many (2000)")
    seed.add_argument(
        "--days", type=between(0.0, 366.0), default=1.0, help="spread their birthdays over this many days"
    )
    seed.add_argument(
        "--hours-ago", type=between(0.0, 9000.0), default=0.0, help="pretend that it was done this many hours ago"
    )
    sink = commands.add_parser("sink", help="a receiver to try it with")
    sink.add_argument("--secret", default=None, help="check signatures")
    for command, port in ((serve, 8080), (sink, 8081)):
        MAIN.add_bind(command, port)
    return parser.parse_args(arguments)


async def nothing_down() -> dict[str, str]:
    return {}


async def _serve_sink(host: str, port: int, secret: str | None) -> int:
    from trueup.web.serving import Server

    from .sink import Sink, make_sink

    if secret is None and not is_loopback(host):
        raise ConfigError(f"host {host}: other machines could reach the sink; give --secret, or serve on 127.0.0.1")
    rules = Rules(hosts=[host, *Rules.from_environment().hosts])  # it has no login: its secret is in the signatures
    server = Server("birthdays sink", make_sink(Sink(secret)), nothing_down, rules, host, port)
    return await server.run_until_stopped()


async def _seed(users: int, days: float, ago: timedelta, service: Service) -> int:
    """As the API would have made them, then: their messages are due from that moment on."""
    then = datetime.now(UTC) - ago
    async with service.app.transaction() as tx:
        for made in made_up(users, then, days=days):
            await people.create(
                tx, service.config.rules, made.first_name, made.last_name, made.born, made.timezone, now=then
            )
    print(f"{users} users, whose birthdays begin within {24 * days:g} hours of {then:%Y-%m-%d %H:%M}Z")
    return 0


if __name__ == "__main__":
    sys.exit(main())
