"""python -m apps.addresses serve|worker|monitor|demo"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import sys
from contextlib import suppress
from functools import partial

from trueup import ConfigError, TrueupError
from trueup.observe.lines import configure_logging
from trueup.web.guard import Rules, check_bind, rules_for

from .chains import canonical, mistyped, unknown, well_formed
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

            return run(seconds=options.seconds)
        service = build(Config.from_environment())
        for logger_name in ("trueup", "addresses"):
            configure_logging(service.app.settings, logger_name=logger_name)
        if options.command == "serve":
            with suppress(KeyboardInterrupt):  # it has stopped in order by then
                return asyncio.run(_serve(service, options.host, options.port))
            return 0
        if options.command == "worker":
            return asyncio.run(_work(service))
        return asyncio.run(_monitor(service, options.chain, options.addresses, options.from_block))
    except ConfigError as error:
        print(f"addresses: {error}", file=sys.stderr)
        return 2
    except TrueupError as error:
        print(f"addresses: {error}", file=sys.stderr)
        return 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m apps.addresses", description="Reconciliation of monitored addresses, on trueup."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API, and what is enabled")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8080)
    commands.add_parser("worker", help="what is enabled: the scheduler, the worker, or both")
    monitor = commands.add_parser("monitor", help="add addresses to the monitored ones")
    monitor.add_argument("chain")
    monitor.add_argument("addresses", nargs="+")
    monitor.add_argument("--from-block", type=_block, help="where their history begins; else a little before the tip")
    demo = commands.add_parser("demo", help="a chain, a fleet, a reorganisation and a crash; and a proof at the end")
    demo.add_argument("--seconds", type=float, default=60.0, help="how long there is traffic")
    return parser.parse_args(arguments)


async def _serve(service: Service, host: str, port: int) -> int:
    from apps.serving import database_down
    from trueup.web.serving import Server

    from .api import make_api

    await service.prepare()  # what is wrong is told before anything is served
    down = partial(database_down, service.app)
    return await Server("addresses", make_api(service), down, rules_for(host), host, port).run_until_stopped()


async def _work(service: Service) -> int:
    if not service.has_work:
        raise ConfigError(
            "nothing is enabled: set RECONCILIATION_SCHEDULER_ENABLED or RECONCILIATION_WORKER_ENABLED to true"
        )
    await service.prepare()
    worker = service.worker()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.request_stop)
    try:
        await worker.run()
    finally:
        await service.close()
    return 0


def _block(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a block")
    return int(text)


async def _monitor(service: Service, chain: str, addresses: list[str], first_block: int | None) -> int:
    if why := unknown(chain):
        raise ConfigError(why)
    wrong = [address for address in addresses if not well_formed(chain, address) or mistyped(address)]
    if wrong:
        raise ConfigError(f"not an address of {chain}: {', '.join(wrong)}")
    await service.prepare()
    async with service.app.transaction() as tx:
        cursor = await tx.execute(
            "insert into addresses as a (address, chain, first_block) select unnest(%s::text[]), %s, %s"
            " on conflict (chain, canonical)"
            " do update set is_monitored = true, first_block = coalesce(excluded.first_block, a.first_block)",
            [list({canonical(address): address for address in addresses}.values()), chain, first_block],
        )
    await service.close()
    print(f"{cursor.rowcount} addresses of {chain} are monitored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
