from __future__ import annotations

import os
import socket
from collections.abc import Callable

import psycopg
import pytest

from tests.cli.conftest import Cli

RunDue = Callable[[], int]


def enqueue(cli: Cli, *arguments: str) -> int:
    job_id: int = cli("jobs", "enqueue", *arguments, "--json").json["id"]
    return job_id


def test_jobs_are_listed_newest_first_one_to_a_line(cli: Cli, run_due: RunDue) -> None:
    first, second = enqueue(cli, "add", "[1]"), enqueue(cli, "send", '["ann"]')
    run_due()
    header, *rows = cli("jobs", "list").out.splitlines()
    assert header.split()[:4] == ["ID", "KIND", "QUEUE", "STATE"]
    assert [row.split()[:5] for row in rows] == [
        [str(second), "send", "mail", "dead", "1/1"],
        [str(first), "add", "default", "done", "1/20"],
    ]
    assert rows[0].endswith("ValueError: no mailbox for ann")


def test_a_list_can_be_narrowed(cli: Cli, run_due: RunDue) -> None:
    dead = enqueue(cli, "send", '["ann"]')
    run_due()
    queued = enqueue(cli, "add", "[1]")

    def listed(*options: str) -> list[int]:
        return [job["id"] for job in cli("jobs", "list", "--json", *options).json]

    assert listed() == [queued, dead]
    assert listed("--state", "queued") == [queued]
    assert listed("--state", "queued", "--state", "dead") == [queued, dead]
    assert listed("--kind", "send") == listed("--queue", "mail") == [dead]
    assert listed("--state", "running") == []


def test_a_cut_list_says_that_there_are_more(cli: Cli) -> None:
    enqueue(cli, "add", "[1]")
    enqueue(cli, "add", "[2]")
    result = cli("jobs", "list", "--limit", "1")
    assert len(result.out.splitlines()) == 2
    assert "there are more" in result.err
    assert cli("jobs", "list", "--limit", "2").err == ""


def test_an_unknown_state_names_the_known_ones(cli: Cli) -> None:
    result = cli("jobs", "list", "--state", "failed")
    assert result.code == 2
    assert ": 'failed' is not one of 'queued', 'running', 'done', 'dead', 'cancelled'" in result.err


def test_a_dead_job_is_shown_with_its_arguments_and_traceback(cli: Cli, run_due: RunDue) -> None:
    job_id = enqueue(cli, "send", '["ann"]')
    run_due()
    shown = cli("jobs", "show", job_id).out
    assert '"to": "ann"' in shown
    assert "out of attempts" in shown
    assert "Traceback (most recent call last):" in shown
    assert "ValueError: no mailbox for ann" in shown
    job = cli("jobs", "show", job_id, "--json").json
    (error,) = job["errors"]
    assert (error["holder"], error["term"]) == (job["holder"], job["term"])
    said = f"by {socket.gethostname()}, pid {os.getpid()}, term {job['term']}, holder {job['holder']}"
    assert said in " ".join(shown.split())


def test_large_arguments_do_not_scroll_the_error_away(cli: Cli, run_due: RunDue) -> None:
    job_id = enqueue(cli, "send", f'["{"x" * 50_000}"]')
    run_due()
    shown = cli("jobs", "show", job_id).out
    assert len(shown) < 20_000
    assert "more characters; --json shows all" in shown
    assert "ValueError: no mailbox for" in shown
    assert len(cli("jobs", "show", job_id, "--json").json["args"]["to"]) == 50_000


def test_the_json_of_a_job_has_everything(cli: Cli, run_due: RunDue) -> None:
    job_id = enqueue(cli, "add", '{"a": 40}')
    run_due()
    job = cli("jobs", "show", job_id, "--json").json
    assert (job["id"], job["state"], job["args"], job["result"]) == (job_id, "done", {"a": 40}, 42)
    assert job["errors"] == []


def test_arguments_cannot_act_on_the_terminal(cli: Cli) -> None:
    job_id = enqueue(cli, "send", '["\\u001b[2J\\u009b31m\\u2028x"]')
    for command in (["jobs", "show", str(job_id)], ["jobs", "show", str(job_id), "--json"]):
        assert all(line.isprintable() for line in cli(*command).out.split("\n"))


def test_an_unknown_job_is_an_error_and_not_an_empty_page(cli: Cli) -> None:
    result = cli("jobs", "show", "4711", "--json")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("error: no job 4711 is known")


def test_retry_revives_the_dead_and_hurries_the_waiting(cli: Cli, run_due: RunDue) -> None:
    dead, waiting = enqueue(cli, "send", '["ann"]'), enqueue(cli, "flaky")
    run_due()
    result = cli("jobs", "retry", dead, waiting, "--json")
    assert result.code == 0
    assert result.json == {"revived": [dead], "hurried": [waiting], "unchanged": []}
    assert {job["state"] for job in cli("jobs", "list", "--json").json} == {"queued"}
    assert run_due() == 2


def test_retry_of_what_cannot_be_retried_is_said_and_exits_with_1(cli: Cli, run_due: RunDue) -> None:
    done = enqueue(cli, "add", "[1]")
    run_due()
    result = cli("jobs", "retry", done, 4711)
    assert result.code == 1
    assert f"unchanged job {done}: done" in result.err
    assert "unchanged job 4711: no such job" in result.err


def test_retry_all_leaves_alone_what_was_never_tried(cli: Cli, run_due: RunDue) -> None:
    enqueue(cli, "send", '["ann"]')
    enqueue(cli, "flaky")
    run_due()
    later = enqueue(cli, "add", "[1]", "--delay", "2h")
    before = cli("jobs", "show", later, "--json").json
    assert cli("jobs", "retry", "--all", "--yes", "--json").json == {"revived": 1, "hurried": 1}
    assert cli("jobs", "show", later, "--json").json == before
    assert run_due() == 2


def test_retry_all_of_a_kind_touches_no_other(cli: Cli, run_due: RunDue) -> None:
    enqueue(cli, "send", '["ann"]')
    enqueue(cli, "flaky")
    run_due()
    assert cli("jobs", "retry", "--all", "--yes", "--kind", "flaky").out == "hurried 1 job\n"
    assert cli("jobs", "list", "--state", "dead", "--json").json[0]["kind"] == "send"


@pytest.mark.parametrize("arguments", [[], ["1", "--all"], ["1", "--kind", "add"]], ids=" ".join)
def test_retry_takes_either_ids_or_all(cli: Cli, arguments: list[str]) -> None:
    assert cli("jobs", "retry", *arguments).code == 2


def test_cancel_cancels_the_queued_and_keeps_the_reason(cli: Cli) -> None:
    job_id = enqueue(cli, "add", "[1]")
    assert cli("jobs", "cancel", job_id, "--reason", "a slip").out == f"cancelled job {job_id}\n"
    job = cli("jobs", "show", job_id, "--json").json
    assert (job["state"], job["reason"]) == ("cancelled", "a slip")


def test_cancel_asks_the_worker_of_a_running_job(cli: Cli, database_url: str) -> None:
    job_id = enqueue(cli, "add", "[1]")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "update trueup.jobs set state = 'running', holder = gen_random_uuid(), claimed_at = now() where id = %s",
            (job_id,),
        )
    result = cli("jobs", "cancel", job_id, "--json")
    assert result.json == {"cancelled": [], "asked_to_stop": [job_id], "unchanged": []}
    assert "stop asked" in cli("jobs", "show", job_id).out


def test_cancel_of_a_job_that_has_ended_exits_with_1(cli: Cli, run_due: RunDue) -> None:
    job_id = enqueue(cli, "add", "[1]")
    run_due()
    result = cli("jobs", "cancel", job_id)
    assert result.code == 1
    assert result.err == f"unchanged job {job_id}: already done\n"


@pytest.mark.parametrize("arguments", [("a",), ("=1",), ("a=1", "a=2"), ("a=1", "a.b=2")], ids=str)
def test_arguments_that_cannot_be_read_or_met_cancel_nothing(cli: Cli, arguments: tuple[str, ...]) -> None:
    job = enqueue(cli, "add", "[2]")
    options = [part for each in arguments for part in ("--argument", each)]
    refused = cli("jobs", "cancel", "--all", "--yes", *options)
    assert (refused.code, "write it as name=value" in refused.err or "another value" in refused.err) == (2, True)
    assert cli("jobs", "show", job, "--json").json["state"] == "queued"


def test_cancel_all_takes_what_matches_and_asks_first(cli: Cli) -> None:
    ones = [enqueue(cli, "add", "[1]") for _ in range(2)]
    enqueue(cli, "add", "[2]")
    enqueue(cli, "flaky")
    refused = cli("jobs", "cancel", "--all", "--kind", "add")
    assert (refused.code, "Cancel 3 queued and running jobs of kind add? There is no terminal" in refused.err) == (
        2,
        True,
    )
    assert cli("jobs", "cancel", *map(str, ones), "--queue", "default", "--yes").code == 2
    matching = ["--kind", "add", "--argument", "a=1", "--queue", "default"]
    assert cli("jobs", "cancel", "--all", *matching, "--older-than", "1h", "--yes").out == "nothing to do\n"
    assert cli("jobs", "cancel", "--all", *matching, "--reason", "a slip", "--yes", "--json").json == {"cancelled": 2}
    listed = cli("jobs", "list", "--state", "cancelled", "--json").json
    assert sorted(job["id"] for job in listed) == ones
    assert cli("jobs", "show", ones[0], "--json").json["reason"] == "a slip"
    assert cli("jobs", "cancel", "--all", "--yes").out == "cancelled 2 jobs\n"
    (action, *_) = cli("actions", "--action", "cancel", "--json").json
    assert action["count"] == 2
