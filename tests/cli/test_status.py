from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable

import psycopg
import pytest

from tests.cli.conftest import Cli
from trueup import App
from trueup.config import CHECKS
from trueup.testing.worker import ManualWorker

Start = Callable[..., subprocess.Popen[str]]


def test_an_idle_database_says_what_is_missing(cli: Cli) -> None:
    shown = cli("status").out
    assert "no job is queued or running" in shown
    assert "no worker runs; start one" in shown


def test_queues_and_endings_are_counted(cli: Cli, run_due: Callable[[], int]) -> None:
    cli("jobs", "enqueue", "add", "[1]")
    cli("jobs", "enqueue", "send", '["ann"]')
    run_due()
    cli("jobs", "enqueue", "add", "[1]")
    cli("jobs", "enqueue", "add", "[1]", "--delay", "1h")
    seen = cli("status", "--json").json
    (queue,) = seen["queues"]
    assert (queue["queue"], queue["kind"], queue["queued"], queue["due"]) == ("default", "add", 2, 1)
    assert queue["oldest_due_s"] >= 0
    assert [(row["kind"], row["state"], row["count"]) for row in seen["ended_last_hour"]] == [
        ("add", "done", 1),
        ("send", "dead", 1),
    ]
    assert seen["dead"] == 1
    assert len(seen["workers"]) == 1  # the one that ran them and was not stopped
    assert "1 dead to look at: trueup dead list" in cli("status").out


def test_the_pause_needs_a_unit(cli: Cli) -> None:
    result = cli("status", "--watch", "--every", "2")
    assert result.code == 2
    assert "has no unit" in result.err


@pytest.mark.slow
def test_watching_without_a_terminal_writes_json_lines_until_interrupted(start: Start) -> None:
    process = start("status", "--watch", "--every", "100ms", "--json")
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline()) for _ in range(3)]
    assert seen[0]["at"] < seen[1]["at"] < seen[2]["at"]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")


def living(database_url: str, declare: Callable[[App], None]) -> None:
    """A worker that runs, seen from outside: it has declared, and its lease is good."""

    async def begin() -> None:
        async with App(database_url) as app:
            declare(app)
            worker = ManualWorker(app)
            await worker.begin()
            await worker.end()

    asyncio.run(begin())


def nightly(app: App) -> None:
    @app.cron("0 3 * * *")
    async def nightly() -> None: ...


def test_a_kind_that_no_running_worker_knows_is_shown(cli: Cli, database_url: str) -> None:
    living(database_url, nightly)
    cli("jobs", "enqueue", "add", "[1]")
    assert [(each["kind"], each["queue"], each["waiting"]) for each in cli("status", "--json").json["unserved"]] == [
        ("add", "default", 1)
    ]
    assert "add has waited in queue default for " in cli("status").out


def test_a_schedule_that_running_workers_declare_and_that_is_gone_is_shown(cli: Cli, database_url: str) -> None:
    living(database_url, nightly)
    assert "To look at" not in cli("status").out
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("delete from trueup.schedules")
    assert cli("status", "--json").json["schedules"]["missing"] == ["nightly"]
    assert "schedule nightly: running workers declare it, but it is not stored" in cli("status").out
    audit = cli("audit")
    assert audit.code == 1
    assert "nightly: missing: declared in code, and not stored" in audit.out


def test_a_schedule_that_no_running_worker_declares_is_shown_and_can_be_retired(cli: Cli, database_url: str) -> None:
    living(database_url, nightly)
    assert cli("schedules", "retire", "nightly").code == 2, "it would come back"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update trueup.workers set lease_until = now()")
    dead = cli("status").out  # a fleet that died declares nothing, and its schedules are not to be retired for that
    assert "no worker is alive: trueup status --check" in dead
    assert "retire" not in dead
    living(database_url, lambda app: None)
    assert "trueup schedules retire nightly" in cli("status").out
    assert cli("schedules", "retire", "nightly", "--reason", "moved").out == "retired schedule nightly\n"
    assert "To look at" not in cli("status").out
    assert cli("schedules", "retire", "nightly").err == "unchanged: it is retired or finished already\n"


def test_a_check_says_what_is_wrong_and_what_to_do(cli: Cli, database_url: str) -> None:
    found = cli("status", "--check")
    assert (found.code, found.out.splitlines()[0]) == (1, "error: workers: no worker is alive, and none ever was")
    assert "start one: trueup worker; if one should be running" in found.out, "TRUEUP_APP names the App"
    living(database_url, nightly)
    assert (cli("status", "--check").code, cli("status", "--check").out) == (0, f"ok: {len(CHECKS)} checks passed\n")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update trueup.workers set lease_until = now()")
    seen = cli("status", "--check", "--json")
    assert seen.code == 1
    assert [each["check"] for each in seen.json["findings"]] == ["workers"]
    assert seen.json["ok"] is False


def test_a_check_of_a_database_that_is_away_or_empty_says_so(bare_cli: Cli, empty_database_url: str) -> None:
    away = "postgresql://u:geheim@127.0.0.1:1/none"
    for url, command, check in (
        (away, ("status", "--check"), "database"),
        (away, ("doctor",), "database"),
        (empty_database_url, ("status", "--check"), "migrations"),
        (empty_database_url, ("doctor",), "schema"),
    ):
        found = bare_cli("--database-url", url, *command, "--json")
        assert (found.code, [each["check"] for each in found.json["findings"]]) == (1, [check])
        assert "geheim" not in found.out


def test_a_check_is_not_watched(cli: Cli) -> None:
    assert cli("status", "--check", "--watch").code == 2


def test_the_doctor_says_what_to_do_and_exits_with_1_on_errors(cli: Cli, database_url: str) -> None:
    assert (cli("doctor").code, cli("doctor").out) == (0, "ok: nothing found\n")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("drop index trueup.jobs_stopping")
    found = cli("doctor", "--json")
    assert (found.code, found.json["ok"]) == (1, False)
    assert [(each["check"], each["severity"]) for each in found.json["findings"]] == [("index", "error")]
    assert "error: index: the index trueup.jobs_stopping is missing" in cli("doctor").out
