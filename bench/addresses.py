"""One daily run of apps/addresses: many monitored addresses on one chain, within a provider's limit of one request a second.

    python -m bench.addresses [--addresses 20000] [--blocks 7200] [--instances 1] [--json]

A real node (anvil) with a day of blocks, a proxy in front of it that writes down when each request came, and real processes
(`python -m apps.addresses worker`) with the default settings, but for 50 jobs at a time in each. Each address has been reconciled up to the first block; one tick
of the schedule makes their jobs. In the end the independent check of the application compares its tables with the node, and the
requests are counted: they follow from the blocks, not from the addresses. Takes about eight minutes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console

from apps.addresses.check import check
from apps.addresses.config import Config
from apps.addresses.service import SCHEDULE, build
from apps.chain.anvil import Anvil
from bench.report import parser, progress, report
from bench.server import server
from trueup import App

PAID_EVERY = 20  # one address in this many has a transaction on that day
MINED_AT_A_TIME = 200  # blocks: a call is answered within seconds
BURST = 2  # what a limit of one request a second lets pass within any second, at its edges
WITHIN = 3600.0
ENABLED = {"RECONCILIATION_SCHEDULER_ENABLED": "true", "RECONCILIATION_WORKER_ENABLED": "true"}
WHERE = {"TRUEUP_SCHEMA": "trueup", "TRUEUP_SEARCH_PATH": "role"}  # as the App that this script looks with


class Counting(ThreadingHTTPServer):
    """Passes every request on to the node, and writes down when it came."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.came_at: list[float] = []


class _Handler(BaseHTTPRequestHandler):
    server: Counting

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.came_at.append(time.monotonic())
        request = urllib.request.Request(self.server.upstream, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            said = answer.read()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def counting(upstream: str) -> Iterator[Counting]:
    with Counting(upstream) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


def busiest_second(moments: Sequence[float]) -> int:
    """The most requests that came within one second."""
    came = sorted(moments)
    return max((end - bisect_left(came, at - 1.0) + 1 for end, at in enumerate(came)), default=0)


def address(number: int) -> str:
    return f"0x{0xADD << 140 | number:040x}"


def a_day(node: Anvil, blocks: int, addresses: int) -> int:
    """Blocks with transactions in them, to some of the addresses; how many."""
    sender, paid = node.accounts()[0], range(0, addresses, PAID_EVERY)
    at_a_time = max(1, len(paid) * 10 // blocks)
    for start in range(0, len(paid), at_a_time):
        for number in paid[start : start + at_a_time]:
            node.send(sender, address(number), 1)
        node.mine()
    while (missing := blocks - node.height()) > 0:
        node.mine(min(missing, MINED_AT_A_TIME))
    return len(paid)


@contextmanager
def instances(count: int, environment: dict[str, str], directory: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "apps.addresses", "worker"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            with (directory / f"{number}.log").open("wb") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


async def begin(url: str, node: str, addresses: int) -> None:
    """The tables, and the addresses, each reconciled up to the first block."""
    service = build(Config.from_environment({**ENABLED, "RECONCILIATION_PROVIDERS": f"ethereum={node}"}), App(url))
    await asyncio.to_thread(service.app.store.migrate)
    await service.prepare()
    async with service.app.transaction() as tx:
        await tx.execute(
            "insert into addresses (address, chain, last_reconciled_block) select unnest(%s::text[]), 'ethereum', 0",
            [[address(number) for number in range(addresses)]],
        )
    await service.close()


async def tick(url: str) -> None:
    async with App(url) as app:
        await app.schedules.trigger(SCHEDULE)


def completed(url: str) -> tuple[int, int]:
    with psycopg.connect(url) as connection:
        (row,) = connection.execute(
            "select count(*) filter (where status = 'completed'), count(*) from reconciliation_jobs"
        ).fetchall()
    return row[0], row[1]


def wait_for_schedule(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with psycopg.connect(url) as connection:
            if connection.execute("select from trueup.schedules where name = %s", [SCHEDULE]).fetchall():
                return
        time.sleep(0.2)
    raise SystemExit("no instance has declared the schedule within a minute")


def run(addresses: int, blocks: int, count: int) -> dict[str, Any]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="addresses-bench-")))
        cluster = stack.enter_context(server())
        node = stack.enter_context(Anvil("--no-mining", "--chain-id", "1", "--prune-history"))
        paid = a_day(node, blocks, addresses)
        progress(f"{node.height()} blocks with {paid} transactions; {addresses} addresses are monitored")
        asyncio.run(begin(cluster.url(), node.url, addresses))
        proxy = stack.enter_context(counting(node.url))
        environment = {**os.environ, **ENABLED, **WHERE, "TRUEUP_DATABASE_URL": cluster.url()}
        environment |= {"RECONCILIATION_PROVIDERS": f"ethereum={proxy.url}", "RECONCILIATION_CONCURRENCY": "50"}
        with instances(count, environment, directory):
            wait_for_schedule(cluster.url())
            asyncio.run(tick(cluster.url()))
            began = told = time.monotonic()
            while (done := completed(cluster.url())) != (addresses, addresses):
                if time.monotonic() > began + WITHIN:
                    raise SystemExit(f"{done[0]} of {done[1]} jobs are done after {WITHIN:g} s")
                if time.monotonic() > told + 30:
                    told = time.monotonic()
                    progress(f"{told - began:4.0f} s  {done[0]} of {done[1]} jobs done, {len(proxy.came_at)} requests")
                time.sleep(1)
            seconds = time.monotonic() - began
        checked = check(cluster.url(), node.url)
    moments = list(proxy.came_at)
    return {
        "addresses": addresses,
        "blocks": blocks + 1,
        "instances": count,
        "seconds": round(seconds),
        "requests": len(moments),
        "requests_in_the_busiest_second": busiest_second(moments),
        "transactions": checked.here,
        "wrong": checked.wrong,
        "holds": not checked.wrong and checked.here == paid and busiest_second(moments) <= BURST,
    }


def show(result: dict[str, Any], console: Console) -> None:
    verdict = "The proof holds" if result["holds"] else "The proof does NOT hold"
    console.print(
        "{verdict}: {addresses:,} addresses on one chain, {blocks:,} blocks: {requests:,} requests in {seconds:,} s by {instances}"
        " instance(s), at most {requests_in_the_busiest_second} within a second; {transactions:,} transactions found, wrong:"
        " {wrong}".format(verdict=verdict, **result),
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def main() -> int:
    options = parser(__doc__, addresses=20_000, blocks=7_200, instances=1).parse_args()
    result = run(options.addresses, options.blocks, options.instances)
    report(result, show, as_json=options.json)
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
