from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli

Start = Callable[..., subprocess.Popen[str]]


@pytest.mark.parametrize(
    ("arguments", "stored"),
    [
        (["[1]"], {"a": 1}),
        (['{"a": 1, "b": 3}'], {"a": 1, "b": 3}),
        (["--arg", "a=1"], {"a": 1}),
        (["--arg", "a:=1", "-a", "b=5"], {"a": 1, "b": 5}),
        (["[1]", "--arg", "b=5"], {"a": 1, "b": 5}),
    ],
    ids=" ".join,
)
def test_arguments_may_be_json_or_pairs(cli: Cli, arguments: list[str], stored: object) -> None:
    result = cli("jobs", "enqueue", "add", *arguments, "--json")
    assert result.json["created"] is True
    assert cli("jobs", "show", result.json["id"], "--json").json["args"] == stored


def test_a_text_that_looks_like_a_number_stays_text_where_text_is_wanted(cli: Cli) -> None:
    job_id = cli("jobs", "enqueue", "send", "--arg", "to=0049", "--json").json["id"]
    assert cli("jobs", "show", job_id, "--json").json["args"] == {"to": "0049"}


UNFIT = [
    (["add"], "a: is missing"),
    (["add", '["x"]'], "a: Input should be a valid integer"),
    (["add", "[1]", "--arg", "c=1"], "c: is not one of its arguments"),
    (["add", "{"], "not JSON"),
    (["add", "a=1"], "a=1 is not JSON; write it with --arg: --arg a=1"),
    (["add", "7"], "must be a JSON object or array"),
    (["add", "--arg", "a"], "write it like name=value"),
    (["add", '{"a": 1, "b": 2, "a": 3}'], "the arguments: 'a' is given twice in one object"),
    (["add", "--arg", "a:=x"], "--arg a: not JSON"),
    (["add", "--arg", "a=1", "--arg", "a=2"], "given twice"),
    (["add", "[1]", "--delay", "5"], "has no unit"),
    (["add", "[1]", "--priority", "5000"], "priority=5000"),
    (["add", "[1]", "--queue", "-"], "queue '-'"),
    (["add", "[1]", "--timeout", "1s"], "--timeout goes with --wait"),
    (["ad", "[1]"], "no job is called 'ad'; registered: add, flaky"),
]


def test_what_does_not_fit_is_said_and_nothing_is_enqueued(cli: Cli) -> None:
    for arguments, said in UNFIT:
        result = cli("jobs", "enqueue", *arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert said in result.err
    assert cli("jobs", "list", "--json").json == []


def test_options_reach_the_job(cli: Cli) -> None:
    options = ["--delay", "1h", "--priority", "7", "--unique", "only", "--queue", "slow"]
    job_id = cli("jobs", "enqueue", "add", "[1]", *options, "--json").json["id"]
    job = cli("jobs", "show", job_id, "--json").json
    assert (job["priority"], job["unique_key"], job["queue"]) == (7, "only", "slow")
    assert job["run_at"] > job["enqueued_at"]


def test_a_second_job_with_the_same_unique_key_is_the_first(cli: Cli) -> None:
    first = cli("jobs", "enqueue", "add", "[1]", "--unique", "only", "--json").json
    second = cli("jobs", "enqueue", "add", "[1]", "--unique", "only", "--json").json
    assert second == {"id": first["id"], "created": False}
    assert "nothing was enqueued" in cli("jobs", "enqueue", "add", "[1]", "--unique", "only").out


def test_waiting_that_takes_too_long_exits_with_1(cli: Cli) -> None:
    result = cli("jobs", "enqueue", "add", "[1]", "--wait", "--timeout", "50ms")
    assert (result.code, result.out) == (1, "")
    assert "is not finished after 50ms" in result.err


@pytest.mark.slow
def test_waiting_prints_the_result_or_the_error(cli: Cli, start: Start) -> None:
    start("worker")
    done = cli("jobs", "enqueue", "add", "[40]", "--wait", "--timeout", "60s")
    assert (done.code, done.out) == (0, "42\n")
    dead = cli("jobs", "enqueue", "send", '["ann"]', "--wait", "--timeout", "60s", "--json")
    assert (dead.code, dead.out) == (1, "")
    assert "ValueError: no mailbox for ann" in dead.err
