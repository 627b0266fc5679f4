"""The probes of a worker, and the dead man's switch of a fleet."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest

from tests.integrations.sink import Sink, says
from tests.support.ports import number, reserve
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until
from tests.support.watching import Watched, until, until_beside
from trueup import App, ConfigError
from trueup.config import CHECKS
from trueup.events import ServiceFailed
from trueup.work import probes


@pytest.fixture
def port() -> Iterator[int]:
    with reserve() as reserved:
        yield number(reserved)


def probe(port: int, path: str) -> tuple[int, list[str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["why"]
    finally:
        connection.close()


@pytest.mark.asyncio
async def test_a_worker_is_ready_from_its_start_until_it_drains(database_url: str, port: int) -> None:
    app = App(database_url, health_port=port)
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.job
    async def wait() -> None:
        started.set()
        await go_on.wait()

    worker = app.worker()
    await worker.start()
    assert await asyncio.to_thread(probe, port, "/readyz") == (200, [])
    assert await asyncio.to_thread(probe, port, "/healthz") == (200, [])
    await wait.enqueue()
    await asyncio.wait_for(started.wait(), 15)
    stopping = asyncio.create_task(worker.stop())
    await until_beside(lambda: probe(port, "/readyz") == (503, ["it stops"]))
    assert await asyncio.to_thread(probe, port, "/healthz") == (200, []), "it drains, and must not be killed"
    go_on.set()
    await stopping
    with pytest.raises(ConnectionRefusedError):
        probe(port, "/healthz")
    await app.close()


@pytest.mark.asyncio
async def test_a_blocked_event_loop_is_not_alive(database_url: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "BEATS_WITHIN", 0.8)
    app = App(database_url, health_port=port)
    async with app.worker():
        found: list[Any] = []

        def watch() -> None:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and not found:
                status, why = probe(port, "/healthz")
                if status == 503:
                    found.extend(why)

        watcher = Thread(target=watch)
        watcher.start()
        watcher.join()  # on purpose: this blocks the loop
        assert found[0].startswith("the event loop has not turned for")
        await until_beside(lambda: probe(port, "/healthz") == (200, []))
    await app.close()


@pytest.mark.asyncio
async def test_a_database_that_is_away_makes_a_worker_unready_and_not_dead(database_url: str, port: int) -> None:
    with Proxy.before(database_url) as proxy:
        app = App(proxy.url(database_url), health_port=port, renew_every="100ms", lease_for="30s")
        async with app.worker():
            proxy.cut()
            await until_beside(lambda: probe(port, "/readyz") == (503, ["the database cannot be reached"]))
            assert await asyncio.to_thread(probe, port, "/healthz") == (200, []), "a restart would not help"
            proxy.heal()
            await until_beside(lambda: probe(port, "/readyz") == (200, []))
        await app.close()


@pytest.mark.asyncio
async def test_one_worker_of_the_fleet_pings_and_only_while_all_checks_pass(database_url: str) -> None:
    async with Sink() as sink:
        app = App(database_url, ping_url=sink.url, ping_every="1s", outgoing_allow="127.0.0.0/8")
        async with app.worker() as first, app.worker() as second:
            (one,), (other,) = first._beside, second._beside
            await until(lambda: len(sink.received) >= 2)
            await other.run_once()
            async with app.transaction() as tx:
                await tx.execute("insert into trueup.scans (name, due_at, error) values ('objects', now(), 'boom')")
            await one.run_once()
            await other.run_once()
            seen = len(sink.received)
            await asyncio.sleep(0)
            for _ in range(3):
                await one.run_once()
                await other.run_once()
            assert len(sink.received) == seen, "a check fails"
            assert json.loads(sink.received[0].body) == {"ok": True, "checks": len(CHECKS)}
            holders = {
                row[0]
                for row in await app.store.pool.fetch(b"select label from trueup.leases where name = 'watch:ping'")
            }
            assert len(holders) == 1
        await app.close()


@pytest.mark.asyncio
async def test_a_ping_that_is_refused_is_said_and_stops_nothing(database_url: str) -> None:
    async with Sink(says(500)) as sink:
        app = App(database_url, ping_url=sink.url, ping_every="1s", outgoing_allow="127.0.0.1")
        events = Watched(app)
        async with app.worker():
            (failed, *_) = await events.seen(ServiceFailed, service="ping")
            assert "answered 500" in failed.error
        await app.close()


def test_a_ping_into_the_own_network_is_refused_unless_it_is_allowed(database_url: str) -> None:
    app = App(database_url, ping_url="http://127.0.0.1:9/x")
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1"):
        app.worker()
    app.close_sync()


class Pings(BaseHTTPRequestHandler):
    count = 0

    def do_POST(self) -> None:
        Pings.count += 1
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.mark.slow
def test_killed_workers_turn_outside_checks_red_within_a_lease_and_stop_the_pings(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        "from trueup import App\napp = App()\n\n\n@app.job\nasync def add() -> None: ...\n"
    )
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Pings)
    Thread(target=receiver.serve_forever, daemon=True).start()
    settings = {
        "TRUEUP_DATABASE_URL": database_url,
        "TRUEUP_APP": "shop:app",
        "TRUEUP_LEASE_FOR": "3s",
        "TRUEUP_PING_URL": f"http://127.0.0.1:{receiver.server_port}/",
        "TRUEUP_PING_EVERY": "1s",
        "TRUEUP_OUTGOING_ALLOW": "127.0.0.1",
        "PATH": "/usr/bin:/bin",
    }
    command = [sys.executable, "-m", "trueup.cli"]
    quiet: dict[str, Any] = {
        "cwd": tmp_path,
        "env": settings,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    workers = [subprocess.Popen([*command, "worker"], **quiet) for _ in range(2)]
    check = [*command, "status", "--check"]
    try:
        wait_until(lambda: Pings.count >= 2, "the fleet pings", timeout=60)
        assert subprocess.run(check, **quiet).returncode == 0
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        killed_at, pings = time.monotonic(), Pings.count
        with psycopg.connect(database_url, autocommit=True) as connection:

            def red() -> list[Any]:
                return connection.execute("select name from trueup.health where not ok").fetchall()

            wait_until(lambda: ("workers",) in red(), "the view is red", timeout=30)
        assert time.monotonic() - killed_at < 3 + 2, "a lease is 3 s long"
        found = subprocess.run([*check, "--json"], **{**quiet, "stdout": subprocess.PIPE})
        assert found.returncode == 1
        assert [each["check"] for each in json.loads(found.stdout)["findings"]] == ["workers"]
        assert Pings.count == pings
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        receiver.shutdown()
        receiver.server_close()
