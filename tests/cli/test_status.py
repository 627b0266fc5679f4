from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli

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
