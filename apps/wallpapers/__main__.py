"""python -m apps.wallpapers serve|worker|reconcile|orphans|demo"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import re
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import partial
from typing import Any

from trueup.web.service import Main, between, on_signals

from .config import Config
from .orphans import ORPHANED_OBJECTS, TooManyOrphans
from .service import Service, build
from .storage import StorageUnavailable

UPLOAD = re.compile(r"PUT /wallpapers/[^/]+/content")  # the intake bounds it, in size and in time


MAIN = Main("wallpapers", failures=(StorageUnavailable, TooManyOrphans))


def main(arguments: list[str] | None = None) -> int:
    return MAIN.run(lambda: _command(_parse(arguments)))


def _command(options: argparse.Namespace) -> int | Coroutine[Any, Any, int]:
    configured = partial(_build, options)
    match options.command:
        case "serve":
            swept = (lambda _: nullcontext()) if options.no_reconciliation else _sweeping
            return MAIN.serve(configured, _api, options.host, options.port, streamed=UPLOAD, while_listening=swept)
        case "worker":
            return MAIN.once(configured, _work)
        case "reconcile":
            return MAIN.once(configured, _reconcile)
        case "orphans":
            return MAIN.once(configured, _list_orphans if options.dry_run else _orphans)
        case _:
            from .demo import demo

            return demo(options.seconds)


def _build(options: argparse.Namespace) -> Service:
    config = Config.from_environment(bucket=options.bucket)
    if getattr(options, "max_fraction", None) is not None:
        config = dataclasses.replace(config, max_fraction=options.max_fraction)
    return build(config)


def _api(service: Service) -> Any:
    from .api import make_api  # only the API needs FastAPI

    return make_api(service)


def _sweeping(service: Service) -> AbstractAsyncContextManager[None]:
    return service.reconciliation.started()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m apps.wallpapers", description="Uploads of wallpapers, on trueup.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="the HTTP API, and the sweeps")
    MAIN.add_bind(serve)
    serve.add_argument("--no-reconciliation", action="store_true", help="the API alone; the sweeps run elsewhere")
    worker = commands.add_parser("worker", help="the sweeps, and the events on their way")
    reconcile = commands.add_parser(
        "reconcile", help="one cycle of sweeps now, and the events that it leaves; no worker is needed"
    )
    orphans = commands.add_parser("orphans", help="delete objects that are not needed, now")
    orphans.add_argument("--dry-run", action="store_true", help="list them instead")
    orphans.add_argument("--max-fraction", type=between(0.001, 1.0), help="refuse to delete more than this part (0.2)")
    demo = commands.add_parser("demo", help="all of it, with real servers, for a minute")
    demo.add_argument("--seconds", type=between(1, 86_400), default=60, help="for how long there are uploads")
    for command in (serve, worker, reconcile, orphans):
        command.add_argument("--bucket", help="before S3_BUCKET, and before wallpapers")
    return parser.parse_args(arguments)


async def _work(service: Service) -> int:
    stop = asyncio.Event()

    def asked_to_stop() -> None:
        if stop.is_set():
            service.reconciliation.hurry()
        stop.set()

    with on_signals(asked_to_stop):
        async with service.reconciliation.started():
            await stop.wait()
    return 0


async def _reconcile(service: Service) -> int:
    outcomes = await service.reconciliation.run_reconciliation_now()
    left = await service.reconciliation.drain_outbox()
    print(json.dumps({**outcomes, "events left in the outbox": left}))
    return 1 if None in outcomes.values() or left else 0


async def _orphans(service: Service) -> int:
    run = await service.app.reconcilers.run(ORPHANED_OBJECTS)
    why = (run.why or "").partition(": ")[2]  # without the type of the error
    print(f"{ORPHANED_OBJECTS}: {run.ending}{why and f': {why}'}", file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main())
