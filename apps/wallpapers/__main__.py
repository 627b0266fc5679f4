"""python -m apps.wallpapers serve|worker|reconcile|orphans|demo"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import re
import signal
import sys
from contextlib import aclosing, suppress

from trueup import ConfigError, TrueupError
from trueup.observe.lines import configure_logging
from trueup.web.guard import Rules, check_bind, rules_for

from .config import Config
from .orphans import ORPHANED_OBJECTS, TooManyOrphans
from .service import Service, build
from .storage import StorageUnavailable

UPLOAD = re.compile(r"PUT /wallpapers/[^/]+/content")  # the intake bounds it, in size and in time


def main(arguments: list[str] | None = None) -> int:
    """0 when all went well, 1 when something failed, 2 when it is not configured."""
    options = _parse(arguments)
    try:
        if options.command == "serve":
            check_bind(options.host, Rules.from_environment())
        if options.command == "demo":
            from .demo import demo

            return demo(options.seconds)
        service = _service(options)
        with suppress(KeyboardInterrupt):  # it has stopped in order by then
            return asyncio.run(COMMANDS[options.command](service, options))
        return 0
    except ConfigError as error:
        print(f"wallpapers: {error}", file=sys.stderr)
        return 2
    except (TrueupError, StorageUnavailable, TooManyOrphans) as error:
        print(f"wallpapers: {error}", file=sys.stderr)
        return 1


def _service(options: argparse.Namespace) -> Service:
    config = Config.from_environment(bucket=options.bucket)
    if getattr(options, "max_fraction", None) is not None:
        config = dataclasses.replace(config, max_fraction=options.max_fraction)
    service = build(config)
    for logger_name in ("trueup", "wallpapers"):
        configure_logging(service.app.settings, logger_name=logger_name)
    return service


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m apps.wallpapers", description="Uploads of wallpapers, on trueup.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API, and the sweeps")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8080)
    serve.add_argument("--no-reconciliation", action="store_true", help="the API alone; the sweeps run elsewhere")
    worker = commands.add_parser("worker", help="the sweeps, and the events on their way")
    reconcile = commands.add_parser(
        "reconcile", help="one cycle of sweeps now, and the events that it leaves; no worker is needed"
    )
    orphans = commands.add_parser("orphans", help="delete objects that nobody needs, now")
    orphans.add_argument("--dry-run", action="store_true", help="list them instead")
    orphans.add_argument("--max-fraction", type=_fraction, help="refuse to delete more than this part (0.2)")
    demo = commands.add_parser("demo", help="all of it, with real servers, for a minute")
    demo.add_argument("--seconds", type=int, default=60)
    for command in (serve, worker, reconcile, orphans):
        command.add_argument("--bucket", help="before S3_BUCKET, and before wallpapers")
    return parser.parse_args(arguments)


def _fraction(text: str) -> float:
    fraction = float(text)
    if not 0 < fraction <= 1:
        raise ValueError(text)
    return fraction


async def _serve(service: Service, options: argparse.Namespace) -> int:
    from .server import Server

    await service.prepare()  # what is wrong is told before anything is served
    rules = rules_for(options.host, streamed=UPLOAD)
    server = Server(service, rules, options.host, options.port, reconcile=not options.no_reconciliation)
    return await server.run_until_stopped()


async def _work(service: Service, options: argparse.Namespace) -> int:
    stop = asyncio.Event()

    def asked_to_stop() -> None:
        if stop.is_set():
            service.reconciliation.hurry()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop)
    try:
        await service.prepare()
        await service.reconciliation.start()
        await stop.wait()
    finally:
        await service.close()
    return 0


async def _reconcile(service: Service, options: argparse.Namespace) -> int:
    try:
        await service.prepare()
        outcomes = await service.reconciliation.run_reconciliation_now()
        left = await service.reconciliation.drain_outbox()
    finally:
        await service.close()
    print(json.dumps({**outcomes, "events left in the outbox": left}))
    return 1 if None in outcomes.values() or left else 0


async def _orphans(service: Service, options: argparse.Namespace) -> int:
    try:
        await service.prepare()
        if options.dry_run:
            return await _list_orphans(service)
        run = await service.app.reconcilers.run(ORPHANED_OBJECTS)
    finally:
        await service.close()
    print(f"{run.ending}{'' if run.why is None else f': {run.why}'}", file=sys.stderr)
    return 0 if run.ok else 1


async def _list_orphans(service: Service) -> int:
    count = 0
    async with aclosing(service.orphans.batches(check=False)) as batches:
        async for batch in batches:
            for each in batch.objects:
                print(f"{each.key}\t{each.size}\t{each.modified_at.isoformat()}")
            count += len(batch.objects)
    try:
        (await service.orphans.count()).check(service.config.max_fraction, service.config.few)
    except TooManyOrphans as error:
        print(f"{count} objects have no row that needs them; none would be deleted: {error}", file=sys.stderr)
    else:
        print(f"{count} objects would be deleted", file=sys.stderr)
    return 0


COMMANDS = {"serve": _serve, "worker": _work, "reconcile": _reconcile, "orphans": _orphans}


if __name__ == "__main__":
    sys.exit(main())
