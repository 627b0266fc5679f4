from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.support import warm
from trueup.operate.jobs import PAGE


@pytest.fixture
def bury(database_url: str) -> Callable[[int, str], list[int]]:
    """Puts so many dead jobs of a kind into the history."""

    def bury(count: int, kind: str) -> list[int]:
        with psycopg.connect(database_url, autocommit=True) as connection:
            rows = connection.execute(
                """
                insert into trueup.history (id, kind, queue, lane, key, state, priority, run_at, args, attempt, max_attempts,
                                            crashes, term, enqueued_at, finished_at, errors)
                select nextval('trueup.jobs_id_seq'), %s, 'default', 'default', '', 'dead', 0, now(), '{"a": 1}', 1, 1,
                       0, 1, now(), now(), '[{"attempt": 1, "type": "ValueError", "message": "boom"}]'
                  from generate_series(1, %s)
                returning id
                """,
                (kind, count),
            )
            return [job_id for (job_id,) in rows]

    return bury


Bury = Callable[[int, str], list[int]]


def test_only_dead_jobs_are_listed(cli: Cli, bury: Bury) -> None:
    cli("jobs", "enqueue", "add", "[1]")
    ids = bury(2, "add") + bury(1, "send")
    assert [job["id"] for job in cli("dead", "list", "--json").json] == ids[::-1]
    assert [job["id"] for job in cli("dead", "list", "--kind", "send", "--json").json] == ids[2:]
    assert "ValueError: boom" in cli("dead", "list").out


def test_an_empty_list_says_so(cli: Cli) -> None:
    assert cli("dead", "list").out == "no jobs\n"
    assert cli("dead", "list", "--json").json == []


def test_a_dead_job_can_be_shown_and_a_living_one_is_refused(cli: Cli, bury: Bury) -> None:
    (dead,) = bury(1, "add")
    assert "ValueError: boom" in cli("dead", "show", dead).out
    alive = cli("jobs", "enqueue", "add", "[1]", "--json").json["id"]
    result = cli("dead", "show", alive)
    assert result.code == 1
    assert f"job {alive} is queued, not dead" in result.err


def test_revive_by_id_says_which_were_and_which_were_not(cli: Cli, bury: Bury) -> None:
    first, second = bury(2, "add")
    result = cli("dead", "revive", first, second, second, 4711, "--json")
    assert result.code == 1
    assert result.json == {"revived": [first, second], "unchanged": [4711]}
    assert "unchanged job 4711" in result.err
    assert cli("jobs", "show", first, "--json").json["state"] == "queued"


def test_revive_all_goes_beyond_one_page(cli: Cli, bury: Bury) -> None:
    bury(PAGE + 1, "add")
    bury(1, "send")
    assert cli("dead", "revive", "--all", "--yes", "--kind", "add").out == f"revived {PAGE + 1:,} jobs\n"
    assert [job["kind"] for job in cli("dead", "list", "--json").json] == ["send"]


def test_discard_keeps_the_reason(cli: Cli, bury: Bury) -> None:
    (dead,) = bury(1, "add")
    assert cli("dead", "discard", dead, "--reason", "known bug").code == 0
    job = cli("jobs", "show", dead, "--json").json
    assert (job["state"], job["reason"]) == ("cancelled", "known bug")


def test_discard_all_counts(cli: Cli, bury: Bury) -> None:
    bury(3, "add")
    assert cli("dead", "discard", "--all", "--yes", "--json").json == {"discarded": 3}
    assert cli("dead", "discard", "--all", "--yes").out == "nothing to do\n"


@pytest.mark.parametrize("verb", ["revive", "discard"])
def test_neither_ids_nor_all_is_a_usage_error(cli: Cli, verb: str) -> None:
    result = cli("dead", verb)
    assert result.code == 2
    assert result.err == "error: give job ids, or --all\n"


@pytest.mark.parametrize("command", ["dead discard", "dead revive", "jobs retry"])
def test_without_a_terminal_all_needs_yes(cli: Cli, bury: Bury, command: str) -> None:
    bury(2, "add")
    result = cli(*command.split(), "--all")
    assert result.code == 2
    assert "give --yes" in result.err
    assert len(cli("dead", "list", "--json").json) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, 2), ("y", 0, 0)])
def test_on_a_terminal_all_is_asked_about_first(
    cli: Cli, bury: Bury, project: Path, answer: str, code: int, left: int
) -> None:
    bury(2, "add")
    ours, theirs = pty.openpty()
    process = warm.Popen(
        [sys.executable, "-W", "error", "-m", "trueup.cli", "dead", "discard", "--all"],
        cwd=project,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    asked = read_until(ours, "[y/N]")
    os.write(ours, f"{answer}\n".encode())
    read_until(ours, None)
    os.close(ours)
    assert "Discard 2 dead jobs?" in asked
    assert process.wait(timeout=60) == code
    assert len(cli("dead", "list", "--json").json) == left


def read_until(terminal: int, expected: str | None) -> str:
    """What the program wrote to the terminal, up to the expected text or to its end."""
    seen = ""
    while expected is None or expected not in seen:
        try:
            seen += os.read(terminal, 1024).decode()
        except OSError:  # how Linux says that the other end is closed
            break
    return seen
