"""python -m apps.birthdays serve|worker|seed|sink"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from trueup import ConfigError, TrueupError
from trueup.observe.lines import configure_logging
from trueup.web.guard import Rules, check_bind, is_loopback, rules_for

from . import people
from .config import Config
from .seed import made_up
from .service import Service, build


def main(arguments: list[str] | None = None) -> int:
    """0 when all went well, 1 when something failed, 2 when it is not configured."""
    options = _parse(arguments)
    try:
        if options.command == "serve":
            check_bind(options.host, Rules.from_environment())
        if options.command == "sink":
            return _serve_sink(options.host, options.port, options.secret)
        service = build(Config.from_environment())
        for logger_name in ("trueup", "birthdays"):
            configure_logging(service.app.settings, logger_name=logger_name)
        if options.command == "serve":
            with suppress(KeyboardInterrupt):  # it has stopped in order by then
                return asyncio.run(_serve(service, options.host, options.port, embedded_worker=options.worker))
            return 0
        if options.command == "worker":
            return asyncio.run(_work(service))
        return asyncio.run(_seed(service, options.users, options.days, timedelta(hours=options.hours_ago)))
    except ConfigError as error:
        print(f"birthdays: {error}", file=sys.stderr)
        return 2
    except TrueupError as error:
        print(f"birthdays: {error}", file=sys.stderr)
        return 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m apps.birthdays", description="Birthday messages, on trueup.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API")
    serve.add_argument("--worker", action="store_true", help="send messages in this process, too")
    commands.add_parser("worker", help="send messages that are due")
    seed = commands.add_parser("seed", help="make up some users")
    seed.add_argument("--users", type=int, default=2000)
    seed.add_argument("--days", type=float, default=1.0, help="their birthdays fall within so many days")
    seed.add_argument("--hours-ago", type=float, default=0.0, help="as if it had been done so many hours ago")
    sink = commands.add_parser("sink", help="a receiver to try it with")
    sink.add_argument("--secret", default=None, help="check signatures")
    for command, port in ((serve, 8080), (sink, 8081)):
        command.add_argument("--host", default="127.0.0.1")
        command.add_argument("--port", type=int, default=port)
    return parser.parse_args(arguments)


async def _serve(service: Service, host: str, port: int, *, embedded_worker: bool) -> int:
    from trueup.web.serving import Server

    from .api import make_api

    await service.prepare()  # what is wrong is told before anything is served
    api = make_api(service, embedded_worker=embedded_worker)
    return await Server("birthdays", api, service.down, rules_for(host), host, port).run_until_stopped()


async def nothing_down() -> dict[str, str]:
    return {}


def _serve_sink(host: str, port: int, secret: str | None) -> int:
    from trueup.web.serving import Server

    from .sink import Sink, make_sink

    if secret is None and not is_loopback(host):
        raise ConfigError(f"host {host}: other machines could reach the sink; give --secret, or serve on 127.0.0.1")

    rules = Rules(hosts=[host, *Rules.from_environment().hosts])  # it has no login: its secret is in the signatures

    async def serve() -> int:
        server = Server("birthdays sink", make_sink(Sink(secret)), nothing_down, rules, host, port)
        return await server.run_until_stopped()

    return asyncio.run(serve())


async def _work(service: Service) -> int:
    await service.prepare()
    worker = service.app.worker()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.request_stop)
    try:
        async with service.watching_for_late():
            await worker.run()
    finally:
        await service.close()
    return 0


async def _seed(service: Service, users: int, days: float, ago: timedelta) -> int:
    """As the API would have made them, then: their messages are due from that moment on."""
    await service.prepare()
    then = datetime.now(UTC) - ago
    async with service.app.transaction() as tx:
        for made in made_up(users, then, days=days):
            await people.create(
                tx, service.config.rules, made.first_name, made.last_name, made.born, made.timezone, now=then
            )
    await service.close()
    print(f"{users} users, whose birthdays are within {days:g} days of {then:%Y-%m-%d %H:%M}Z")
    return 0


if __name__ == "__main__":
    sys.exit(main())
