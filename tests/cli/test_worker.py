"""The worker as a real process: signals, exit codes, log lines."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.cli.conftest import Cli
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

Start = Callable[..., subprocess.Popen[str]]


def ended(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, object]]]:
    """The exit code, and the log as records."""
    out, err = process.communicate(timeout=60)
    assert out == ""
    lines = err.splitlines()
    assert [line for line in lines if not line.startswith("{")] == []
    return process.returncode, [json.loads(line) for line in lines]


def enqueue_waiting(cli: Cli, path: Path, kind: str = "wait_for") -> int:
    """A job that says it has started and then waits for a file."""
    job_id: int = cli("jobs", "enqueue", kind, "--arg", f"path={path}", "--json").json["id"]
    return job_id


def wait_for_handler(process: subprocess.Popen[str], path: Path) -> None:
    """Until the job that waits for this file runs."""
    started = Path(f"{path}.started")
    wait_until(lambda: started.exists() or process.poll() is not None, "the handler runs", timeout=30)
    assert started.exists(), process.communicate()


def state(cli: Cli, job_id: int) -> str:
    return str(cli("jobs", "show", job_id, "--json").json["state"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_running_job_ends_before_the_worker_does(
    cli: Cli, start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    job_id = enqueue_waiting(cli, tmp_path / "go")
    process = start("worker", "--concurrency", "5")
    wait_for_handler(process, tmp_path / "go")
    process.send_signal(number)
    assert process.stderr is not None
    while json.loads(process.stderr.readline())["message"] != "worker stopping":
        pass
    (tmp_path / "go").touch()
    code, log = ended(process)
    assert code == 0
    assert (log[-1]["message"], log[-1]["released"], log[-1]["abandoned"]) == ("worker stopped", 0, 0)
    assert state(cli, job_id) == "done"


ASKING = """

@app.job
async def ask(path: str) -> None:
    while True:
        try:
            await app.jobs.count()
            Path(path + ".started").touch()
        except Exception:
            pass
        await asyncio.sleep(0.01)
"""


def test_every_line_is_json_while_the_database_is_away(
    cli: Cli, start: Start, project: Path, database_url: str
) -> None:
    """psycopg and its pool log, too, at each connection that breaks or cannot be made."""
    with (project / "shop.py").open("a") as shop:
        shop.write(ASKING)
    enqueue_waiting(cli, project / "asks", "ask")
    process = start("worker", TRUEUP_LOG_FORMAT="json", TRUEUP_DRAIN_FOR="0s")
    wait_for_handler(process, project / "asks")
    lines: list[dict[str, object]] = []

    def read_until(logger: str, message: str) -> None:
        while not lines or (lines[-1]["logger"], str(lines[-1]["message"]).partition(":")[0]) != (logger, message):
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line, (process.wait(), lines)
            lines.append(json.loads(line))

    own = conninfo_to_dict(database_url)
    away = "alter database {} allow_connections {}"
    with psycopg.connect(make_conninfo(database_url, dbname="postgres"), autocommit=True) as connection:
        name = sql.Identifier(str(own["dbname"]))
        connection.execute(sql.SQL(away).format(name, sql.SQL("false")))
        end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
        connection.execute(end, [own["dbname"]])
        read_until("psycopg.pool", "error connecting in 'trueup'")
        connection.execute(sql.SQL(away).format(name, sql.SQL("true")))
    read_until("trueup.database", "database restored")
    process.send_signal(signal.SIGTERM)
    code, log = ended(process)
    assert code == 0
    assert {"trueup.database", "psycopg.pool"} <= {str(line["logger"]) for line in [*lines, *log]}


def test_a_second_signal_hands_the_running_job_back(cli: Cli, start: Start, tmp_path: Path) -> None:
    job_id = enqueue_waiting(cli, tmp_path / "never")
    process = start("worker")
    wait_for_handler(process, tmp_path / "never")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while json.loads(process.stderr.readline())["message"] != "worker stopping":
        pass
    process.send_signal(signal.SIGTERM)
    code, log = ended(process)
    assert code == 0
    assert log[-1]["released"] == 1
    job = cli("jobs", "show", job_id, "--json").json
    assert (job["state"], job["attempt"]) == ("queued", 0)


@pytest.mark.parametrize("kind", ["hang", "hang_aside"])
def test_a_thread_that_hangs_does_not_keep_the_process(cli: Cli, start: Start, tmp_path: Path, kind: str) -> None:
    job_id = enqueue_waiting(cli, tmp_path / "hang", kind=kind)
    process = start("worker", TRUEUP_DRAIN_FOR="0s")
    wait_for_handler(process, tmp_path / "hang")
    process.send_signal(signal.SIGTERM)
    code, log = ended(process)
    assert (code, log[-1]["message"]) == (0, "worker stopped")
    assert state(cli, job_id) == "queued"


def test_a_handler_that_ignores_its_cancellation_does_not_keep_the_process(
    cli: Cli, start: Start, tmp_path: Path
) -> None:
    job_id = enqueue_waiting(cli, tmp_path / "deaf", kind="ignore")
    process = start("worker", TRUEUP_DRAIN_FOR="0s")
    wait_for_handler(process, tmp_path / "deaf")
    process.send_signal(signal.SIGTERM)
    code, log = ended(process)
    assert (code, log[-1]["abandoned"]) == (1, 1)
    assert state(cli, job_id) == "queued"


def test_only_the_named_queues_are_served(cli: Cli, start: Start, tmp_path: Path) -> None:
    other = cli("jobs", "enqueue", "add", "[1]", "--json").json["id"]
    mine = cli("jobs", "enqueue", "wait_for", "--arg", f"path={tmp_path / 'go'}", "--queue", "side", "--json").json[
        "id"
    ]
    (tmp_path / "go").touch()
    process = start("worker", "--queue", "side=2")
    wait_for_handler(process, tmp_path / "go")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 0
    assert (state(cli, mine), state(cli, other)) == ("done", "queued")


def test_migrate_first(start: Start, empty_database_url: str) -> None:
    refused = start("worker", TRUEUP_DATABASE_URL=empty_database_url)
    _, err = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert "trueup worker --migrate" in err
    process = start("worker", "--migrate", TRUEUP_DATABASE_URL=empty_database_url)
    assert process.stderr is not None
    messages = []
    while not messages or messages[-1] != "worker started":
        messages.append(json.loads(process.stderr.readline())["message"])
    assert messages[0] == "migration applied"
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 0


@pytest.mark.parametrize("arguments", [["--queue", "mail=x"], ["--queue", ""], ["--concurrency", "0"]], ids=" ".join)
def test_a_number_or_queue_that_is_none_is_a_usage_error(cli: Cli, arguments: list[str]) -> None:
    result = cli("worker", *arguments)
    assert result.code == 2
    assert arguments[0] in result.err


def test_the_worker_does_not_start_without_its_database(start: Start) -> None:
    process = start("worker", TRUEUP_DATABASE_URL="postgresql://app:geheim@127.0.0.1:1/shop", TRUEUP_START_WITHIN="0s")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    last = [json.loads(line) for line in err.splitlines()][-1]  # every line is JSON where lines are
    assert last["level"] == "error"
    assert last["message"].startswith("cannot connect to postgresql://app:***@127.0.0.1:1/shop")
