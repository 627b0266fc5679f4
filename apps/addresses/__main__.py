"""python -m apps.addresses serve|worker|monitor|demo"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any

from trueup import ConfigError
from trueup.web.service import Main, between

from .chains import canonical, mistyped, unknown, well_formed
from .service import Service, build_configured

MAIN = Main("addresses")
LAST_BLOCK = 10**18 - 1


def main(arguments: list[str] | None = None) -> int:
    return MAIN.run(lambda: _command(_parse(arguments)))


def _command(options: argparse.Namespace) -> int | Coroutine[Any, Any, int]:
    match options.command:
        case "serve":
            return MAIN.serve(build_configured, _api, options.host, options.port)
        case "worker":
            return MAIN.work(_enabled, worker=Service.worker)
        case "monitor":
            return MAIN.once(build_configured, partial(_monitor, options.chain, options.addresses, options.from_block))
        case _:
            from .demo import run

            return run(seconds=options.seconds)


def _enabled() -> Service:
    service = build_configured()
    if not service.has_work:
        raise ConfigError(
            "nothing is enabled: set RECONCILIATION_SCHEDULER_ENABLED or RECONCILIATION_WORKER_ENABLED to true"
        )
    return service


def _api(service: Service) -> Any:
    from .api import make_api  # only the API needs FastAPI

    return make_api(service)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m apps.addresses", description="Reconciliation of monitored addresses, on trueup."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API, and what is enabled")
    MAIN.add_bind(serve)
    commands.add_parser("worker", help="what is enabled: the scheduler, the worker, or both")
    monitor = commands.add_parser("monitor", help="add addresses to the monitored ones")
    monitor.add_argument("chain")
    monitor.add_argument("addresses", nargs="+")
    monitor.add_argument(
        "--from-block", type=between(0, LAST_BLOCK), help="where their history begins; else a little before the tip"
    )
    demo = commands.add_parser("demo", help="a chain, a fleet, a reorganisation and a crash; and a proof at the end")
    demo.add_argument("--seconds", type=between(5, 86_400), default=60, help="how long there is traffic")
    return parser.parse_args(arguments)


async def _monitor(chain: str, addresses: list[str], first_block: int | None, service: Service) -> int:
    if why := unknown(chain):
        raise ConfigError(why)
    wrong = [address for address in addresses if not well_formed(chain, address) or mistyped(address)]
    if wrong:
        raise ConfigError(f"not an address of {chain}: {', '.join(wrong)}")
    async with service.app.transaction() as tx:
        cursor = await tx.execute(
            "insert into addresses as a (address, chain, first_block) select unnest(%s::text[]), %s, %s"
            " on conflict (chain, canonical)"
            " do update set is_monitored = true, first_block = coalesce(excluded.first_block, a.first_block)",
            [list({canonical(address): address for address in addresses}.values()), chain, first_block],
        )
    print(f"monitored on {chain}: {cursor.rowcount}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
