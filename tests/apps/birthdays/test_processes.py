"""Real processes on a real database: started, killed, stopped."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apps.birthdays import people
from tests.apps.processes import Town, ask, town
from tests.support import ports, warm
from tests.support.matrix import count
from tests.support.processes import ROOT
from tests.support.waiting import wait_until
from trueup import App

pytestmark = pytest.mark.slow

SOON = 30  # seconds; what is waited for takes two or three


class Hook(ThreadingHTTPServer):
    """A receiver that takes everything, and can be told to hang on a name."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        self.seen: list[tuple[str, str]] = []  # message and key, when it came
        self.hang_on = "nobody"
        self.hanging = threading.Event()
        self.go_on = threading.Event()

    def names(self) -> list[str]:
        return [message.split()[1] for message, _ in self.seen]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has been killed."""


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert body["idempotencyKey"] == body["eventId"] == self.headers["idempotency-key"]
        self.server.seen.append((body["message"], body["idempotencyKey"]))
        if f" {self.server.hang_on} " in body["message"]:
            self.server.hanging.set()
            self.server.go_on.wait()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as hook:
        thread = threading.Thread(target=hook.serve_forever, args=[0.05])
        thread.start()
        yield hook
        hook.go_on.set()
        hook.shutdown()
        thread.join()


def at(url: str, hook: str) -> tuple[str, dict[str, str]]:
    """The application on this database, sending to this receiver."""
    return "apps.birthdays", {
        "BIRTHDAYS_EVERY": "200ms",
        "BIRTHDAYS_RETRY_OVER": "30s",
        "BIRTHDAYS_LEASE_FOR": "2s",
        "TRUEUP_DATABASE_URL": url,
        "BIRTHDAYS_WEBHOOK_URL": hook,
        "BIRTHDAYS_WEBHOOK_ALLOW": "127.0.0.1",
    }


@pytest.fixture
def place(database_url: str, hook: Hook, tmp_path: Path) -> Iterator[Town]:
    with town(*at(database_url, hook.url), tmp_path) as place:
        yield place


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    asyncio.run(_tables(database_url))
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


async def _tables(url: str) -> None:
    async with App(url) as app, app.transaction() as tx:
        await people.make_tables(tx)


def due(database: psycopg.Connection[Any], *names: str, ago: timedelta = timedelta(hours=24)) -> None:
    """Users whose messages became due one after the other, the first so long ago."""
    for number, name in enumerate(names):
        row = database.execute(
            "insert into users (first_name, last_name, date_of_birth, timezone) values (%s, 'x', '1990-01-01', 'UTC')"
            " returning id",
            [name],
        ).fetchone()
        assert row is not None
        at = datetime.now(UTC) - ago + number * timedelta(seconds=1)
        database.execute(
            "insert into events (user_id, target_year, target_timestamp_utc) values (%s, 2026, %s)", [row[0], at]
        )


def states(database: psycopg.Connection[Any]) -> Counter[str]:
    return Counter(dict(database.execute("select status, count(*)::int from events group by 1").fetchall()))


def test_a_worker_killed_at_c_of_five_loses_nothing_and_doubles_nothing(
    place: Town, database: psycopg.Connection[Any], hook: Hook
) -> None:
    due(database, "A", "B", "C", "D", "E")
    hook.hang_on = "C"
    first = place.start("worker", BIRTHDAYS_CONCURRENCY="1")
    assert hook.hanging.wait(SOON)
    wait_until(lambda: states(database)["COMPLETED"] == 2, "A and B are completed")
    first.kill()
    hook.hang_on = "nobody"
    hook.go_on.set()
    assert states(database)["PROCESSING"] >= 1
    place.start("worker", BIRTHDAYS_CONCURRENCY="1")
    wait_until(lambda: states(database)["COMPLETED"] == 5, "all are completed", timeout=SOON)
    assert Counter(hook.names()) == {"A": 1, "B": 1, "C": 2, "D": 1, "E": 1}
    assert len({key for _, key in hook.seen}) == 5, "so C, which came twice, is one at the receiver"
    assert states(database) == {"COMPLETED": 5, "PENDING": 5}


def test_after_a_day_of_downtime_the_first_run_sends_all_and_tells_of_it(
    place: Town, database: psycopg.Connection[Any], hook: Hook
) -> None:
    due(database, *(f"user{number}" for number in range(70)))
    worker = place.start("worker", BIRTHDAYS_EVERY="1h")  # so the first run is that of the start
    wait_until(lambda: worker.lines("Birthday messages sent"), "the first run is over", timeout=SOON)
    (run,) = worker.lines("Birthday messages sent")
    assert (run["processed"], run["failed"], run["late"]) == (70, 0, 70)
    assert run["events_per_second"] > 0
    (alert,) = worker.lines("Recovery mode detected")
    assert (alert["late_events"], alert["oldest_event_age"], alert["level"]) == (70, "24.0h", "error")
    late = worker.lines("Late event execution (recovery)")
    assert len(late) == 70
    assert {line["lateness_hours"] for line in late} == {24.0}
    assert len(hook.seen) == 70


def test_a_worker_that_was_away_for_a_moment_looks_at_once(place: Town, database: psycopg.Connection[Any]) -> None:
    """Not after the rest of the hour in which the one before it has already looked."""
    due(database, "A")
    first = place.start("worker", BIRTHDAYS_EVERY="1h")
    wait_until(lambda: first.lines("Birthday messages sent"), "the first run is over", timeout=SOON)
    assert first.stop() == 0
    due(database, "B", ago=timedelta(seconds=1))
    second = place.start("worker", BIRTHDAYS_EVERY="1h")
    wait_until(lambda: second.lines("Birthday messages sent"), "B is sent", timeout=SOON)
    assert states(database)["COMPLETED"] == 2


def test_a_worker_that_is_asked_to_stop_finishes_what_it_has_begun(
    place: Town, database: psycopg.Connection[Any], hook: Hook
) -> None:
    due(database, "A", "B", "C")
    hook.hang_on = "B"
    worker = place.start("worker", BIRTHDAYS_CONCURRENCY="1", TRUEUP_LOG_LEVEL="info")
    assert hook.hanging.wait(SOON)
    worker.ask_to_stop()
    wait_until(lambda: worker.lines("worker stopping"), "it has heard of it")
    hook.go_on.set()
    assert worker.ended() == 0
    assert states(database) == {"COMPLETED": 2, "PENDING": 3}, "B was seen through, C handed back"
    assert hook.names() == ["A", "B"]


def test_two_workers_share_the_messages_and_send_none_twice(
    place: Town, database: psycopg.Connection[Any], hook: Hook
) -> None:
    number = count(60, proof=300)
    due(database, *(f"user{each}" for each in range(number)))
    workers = [place.start("worker") for _ in range(2)]
    wait_until(lambda: states(database)["COMPLETED"] == number, "all are completed", timeout=3 * SOON, pause=0.05)
    assert max(Counter(hook.names()).values()) == 1
    assert [worker.stop() for worker in workers] == [0, 0]


def test_the_metrics_of_a_worker_have_those_of_the_application(place: Town, database: psycopg.Connection[Any]) -> None:
    due(database, "A", "B")
    with ports.reserve() as reserved:
        port = ports.number(reserved)
        place.start("worker", TRUEUP_METRICS_PORT=str(port))
        wait_until(lambda: states(database)["COMPLETED"] == 2, "both are completed", timeout=SOON)

        def served() -> str:
            return str(ask(f"http://127.0.0.1:{port}/metrics"))

        wait_until(lambda: "birthdays_processed_total 2.0" in served(), "both are counted")
        wait_until(lambda: "trueup_rows_total{outcome=" in served(), "the run is counted")
        text = served()
    assert "birthdays_late_total 2.0" in text
    assert "birthdays_failed_total 0.0" in text
    assert "birthdays_recovery_mode 0.0" in text
    assert "birthdays_average_lateness_seconds 86" in text
    assert "birthdays_run_duration_seconds" in text


def test_the_api_serves_with_a_worker_inside_and_stops_in_order(
    place: Town, database: psycopg.Connection[Any], hook: Hook
) -> None:
    due(database, "A")
    process, base = place.serve("serve", "--worker")
    wait_until(lambda: states(database)["COMPLETED"] == 1, "A is completed", timeout=SOON)
    wait_until(lambda: _status(f"{base}/health") == 200, "a run is over")
    user = {"first_name": "Zoë 🎂", "last_name": "{x}", "date_of_birth": "1990-02-28", "timezone": "Asia/Tokyo"}
    made = ask(f"{base}/users", "POST", user)
    assert ask(f"{base}/users/{made['id']}") == {"id": made["id"], **user}
    assert f"birthdays: listening on {base}" in process.said
    assert (ask(f"{base}/healthz"), ask(f"{base}/readyz")) == ({"alive": True}, {"ready": True, "down": []})
    assert process.stop() == 0
    assert "Traceback" not in process.said
    assert database.execute("select from trueup.workers").rowcount == 0, "the worker has left in order"


def test_a_secret_appears_in_no_log(place: Town, database: psycopg.Connection[Any], hook: Hook) -> None:
    due(database, "A")
    hook_with_token = f"{hook.url}?token=hunter2"
    worker = place.start(
        "worker", BIRTHDAYS_WEBHOOK_URL=hook_with_token, BIRTHDAYS_WEBHOOK_SECRET="hunter3", TRUEUP_LOG_LEVEL="debug"
    )
    wait_until(lambda: states(database)["COMPLETED"] == 1, "A is completed", timeout=SOON)
    assert worker.stop() == 0
    assert worker.lines("Birthday messages sent")
    assert "hunter" not in worker.said


def test_a_seed_is_sent_to_the_sink_as_the_readme_has_it(place: Town, tmp_path: Path) -> None:
    _, sink = place.serve("sink")
    variables = {**place.environment, "BIRTHDAYS_WEBHOOK_URL": f"{sink}/hook"}
    ended = warm.run("apps.birthdays", "seed", "--users", "50", "--hours-ago", "48", cwd=ROOT, env=variables)
    assert ended.returncode == 0, ended.stderr
    place.start("worker", BIRTHDAYS_WEBHOOK_URL=f"{sink}/hook")
    wait_until(lambda: ask(f"{sink}/counts")["delivered"] == 50, "all have arrived", timeout=SOON)
    assert ask(f"{sink}/counts")["again"] == 0


@pytest.mark.parametrize("command", ["worker", "serve", "seed"])
def test_a_database_that_was_not_prepared_is_told_of_with_2(
    empty_database_url: str, hook: Hook, tmp_path: Path, command: str
) -> None:
    with town(*at(empty_database_url, hook.url), tmp_path) as place:
        process = place.start(command)
        assert process.ended() == 2
        assert "trueup migrate" in process.said
        assert "Traceback" not in process.said


@pytest.mark.parametrize("command", ["worker", "serve", "seed"])
def test_a_database_that_cannot_be_reached_is_told_of_with_1(hook: Hook, tmp_path: Path, command: str) -> None:
    with ports.reserve() as nobody:
        url = f"postgresql://user:hunter2@127.0.0.1:{ports.number(nobody)}/birthdays"
        with town(*at(url, hook.url), tmp_path) as place:
            process = place.start(command)
            assert process.ended() == 1
            assert process.said.startswith("birthdays: cannot connect to ")
            assert "hunter2" not in process.said
            assert "Traceback" not in process.said


def _status(url: str) -> int:
    try:
        ask(url)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    return 200
