from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.cli.rows import PAPERS, TABLES, Query
from tests.support import warm
from tests.support.waiting import wait_until

Start = Callable[..., subprocess.Popen[str]]
LISTED = ["move-papers-trial", "objects", "pair", "publish", "recover", "too-much", "wait"]


@pytest.fixture(autouse=True)
def query(project: Path, database_url: str) -> Query:
    (project / "shop.py").write_text(PAPERS)

    def query(text: str, *params: object) -> object:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), params)
            return cursor.fetchall() if cursor.description else None

    query(TABLES)
    return query


def on_terminal(project: Path, database_url: str, *arguments: str, columns: int = 100) -> str:
    """What a command writes to a terminal."""
    master, slave = pty.openpty()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRUEUP_")},
        "TRUEUP_DATABASE_URL": database_url,
        "TRUEUP_APP": "shop:app",
        "COLUMNS": str(columns),
        "TERM": "xterm",
    }
    process = warm.Popen(
        [sys.executable, "-W", "error", "-m", "trueup.cli", *arguments],
        cwd=project,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    said = b""
    try:
        while part := os.read(master, 65_536):
            said += part
    except OSError:  # the other end is closed
        pass
    process.wait(timeout=30)
    os.close(master)
    return said.decode()


# -- list and show ----------------------------------------------------------------------------------------------------


def test_a_reconciler_whose_sweeps_fail_is_named_wherever_people_look(cli: Cli, query: Query) -> None:
    query(
        "insert into trueup.reconcilers (name, place, declared, declared_at, last_error, last_failed_at, failures)"
        " values ('recover', 'papers', '{}', now(), 'view is broken', now(), 3)"
    )
    listed, status, recovery = cli("reconcilers", "list"), cli("status"), cli("recovery")
    assert "failing: view is broken" in listed.out
    assert "failing: recover" in status.out
    assert "sweeps of recover fail" in recovery.out
    assert (status.code, recovery.code) == (1, 1)
    assert "view is broken" in cli("reconcilers", "show", "recover").out
    query("update trueup.reconcilers set last_error = null, failures = 0")
    assert cli("status").code == 0


def test_without_an_app_and_a_worker_the_list_says_how_to_get_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUEUP_APP")
    result = cli("reconcilers", "list")
    assert (result.code, result.out.startswith("no reconcilers; a worker registers them")) == (0, True)
    assert cli("reconcilers", "list", "--json").json == []


def test_declared_ones_are_listed_before_they_have_ever_run(cli: Cli) -> None:
    listed = cli("reconcilers", "list", "--json").json
    assert [each["name"] for each in listed] == LISTED
    assert {each["known"] for each in listed} == {False}
    lines = [line.split("  ") for line in cli("reconcilers", "list").out.splitlines()]
    assert [line[0].strip() for line in lines[1:]] == LISTED
    assert all("never started" in line for line in cli("reconcilers", "list").out.splitlines()[1:])


def test_the_list_says_what_became_of_rows_and_that_some_are_in_quarantine(cli: Cli, query: Query) -> None:
    cli("reconcilers", "run", "recover")
    query("update trueup.reconcilers set paused_until = now() + interval '90 s', note = 'failed over and over'")
    result = cli("reconcilers", "list")
    (line,) = [line for line in result.out.splitlines() if line.startswith("recover ")]
    assert "papers: uploading, unchanged for 10m" in line
    assert "resting 1m" in line
    assert "failed over and over" in line
    assert line.endswith("8 changed, 1 retry, 1 quarantined")
    assert result.err == "1 row is in quarantine; see: trueup reconcilers quarantine list\n"


def test_the_keys_that_wait_for_their_breaker_are_named(cli: Cli, query: Query) -> None:
    cli("reconcilers", "run", "recover")
    query(
        "insert into trueup.reconciler_pauses (reconciler, key, paused_until)"
        " values ('recover', 'bob', now() + interval '1 min'), ('recover', 'over', now() - interval '1 min')"
    )
    (line,) = [line for line in cli("reconcilers", "list").out.splitlines() if line.startswith("recover")]
    assert "active, circuit breaker open for bob" in line
    (record,) = [each for each in json.loads(cli("reconcilers", "list", "--json").out) if each["name"] == "recover"]
    assert record["paused_keys"] == ["bob"]
    cli("reconcilers", "resume", "recover")
    assert "bob" not in cli("reconcilers", "list").out


def test_one_that_the_code_declares_no_more_is_told_apart(
    cli: Cli, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query("insert into trueup.reconcilers (name, place, declared, declared_at) values ('old', 'p', '{}', now())")
    assert "not declared" in next(line for line in cli("reconcilers", "list").out.splitlines() if "old" in line)
    monkeypatch.delenv("TRUEUP_APP")
    assert "not declared" not in cli("reconcilers", "list").out


def test_one_is_shown_with_everything(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("reconcilers", "run", "recover")
    monkeypatch.delenv("TRUEUP_APP")  # the database knows enough
    shown = cli("reconcilers", "show", "recover")
    assert shown.code == 0
    assert "rows       papers: uploading, unchanged for 10m\n" in shown.out
    assert "known rows 1 resting, 1 quarantined\n" in shown.out
    assert "max_attempts=3" in shown.out
    assert "# Sweeps" in shown.out
    assert "# Last errors" in shown.out
    assert r"trueup.GiveUp: no \x1b[31msuch\nobject" in shown.out
    assert "geheim" not in shown.out
    document = cli("reconcilers", "show", "recover", "--json").json
    assert (document["sweeps"][0]["claimed"], document["quarantined"], document["declared_here"]) == (10, 1, None)


def test_what_was_proposed_in_shadow_mode_is_shown_with_examples(cli: Cli) -> None:
    ran = cli("reconcilers", "run", "publish")
    assert ran.code == 0
    assert ran.out.startswith("publish: 4 rows in ")
    assert ran.out.endswith(": proposed 2 Stay, 2 To('published')\n") or ran.out.endswith(
        ": proposed 2 To('published'), 2 Stay\n"
    )
    shown = cli("reconcilers", "show", "publish").out
    assert "# Proposed in shadow mode" in shown
    assert ["To('published')", "2", "201", "To('published')"] in [line.split() for line in shown.splitlines()]
    assert "state      shadow\n" in shown


def test_a_name_that_is_none_is_not_found_and_a_near_one_is_suggested(cli: Cli) -> None:
    for verb in ("show", "run", "pause", "resume"):
        result = cli("reconcilers", verb, "recovr")
        assert (result.code, result.err) == (1, "error: no reconciler is called 'recovr'; did you mean 'recover'?\n")


# -- run --------------------------------------------------------------------------------------------------------------


def test_a_run_says_what_became_of_rows_and_exits_with_one_for_quarantine(cli: Cli) -> None:
    first = cli("reconcilers", "run", "recover")
    assert first.code == 1
    assert first.out.startswith("recover: 10 rows in ")
    assert first.out.endswith(": 8 changed, 1 retry, 1 quarantined\n")
    assert first.err.endswith("see: trueup reconcilers quarantine list recover\n")
    second = cli("reconcilers", "run", "recover")
    assert (second.code, second.out) == (0, "recover: nothing to do\n")


def test_a_run_as_json(cli: Cli) -> None:
    result = cli("reconcilers", "run", "move-papers-trial", "--limit", "2", "--json")
    assert result.code == 0
    document = result.json
    assert (document["reconciler"], document["ending"], document["outcomes"]["changed"]) == (
        "move-papers-trial",
        "completed",
        2,
    )


def test_without_a_terminal_progress_is_lines_on_standard_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trueup.cli.sweeping.SAY_EVERY", 0.0)
    assert "move-papers-trial: 5 of 5, " in cli("reconcilers", "run", "move-papers-trial").err
    assert "of" not in cli("reconcilers", "run", "publish", "--no-progress").err


def test_a_run_that_would_touch_too_much_is_refused(cli: Cli, query: Query) -> None:
    result = cli("reconcilers", "run", "too-much")
    assert result.code == 1
    assert result.out.startswith("too-much: refused, nothing was changed: 5 of 19 rows")
    dry = cli("reconcilers", "run", "too-much", "--dry-run")
    assert dry.code == 1
    assert "would be refused: 5 of 19 rows" in dry.out
    assert query("select count(*) from papers where state = 'trial'") == [(5,)]


def test_a_dry_run_lists_rows_and_what_would_be_done(cli: Cli, query: Query) -> None:
    result = cli("reconcilers", "run", "recover", "--dry-run", "--limit", "2")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].split() == ["KEY", "STATE", "DUE", "ATTEMPTS", "WOULD"]
    assert lines[1].split()[:2] == ["1", "uploading"]
    assert lines[-1] == "recover: 2 of 10 rows are shown (--limit); would call recover"
    assert cli("reconcilers", "run", "wait", "--dry-run").out == "wait: nothing to do\n"
    assert query("select count(*) from trueup.rows") == [(0,)]


def test_a_dry_run_in_shadow_calls_handlers_and_warns(cli: Cli, query: Query) -> None:
    result = cli("reconcilers", "run", "recover", "--dry-run", "--shadow")
    assert "are NOT undone" in result.err
    outcomes = [line.split()[4:] for line in result.out.splitlines()]
    assert ["To('stored',", "size=3)"] in outcomes
    assert "raises ConnectionError: refused by postgresql://app:***@db/x" in result.out
    assert query("select count(*) from papers where state = 'stored'") == [(0,)]
    rows = cli("reconcilers", "run", "recover", "--dry-run", "--shadow", "--json").json["rows"]
    assert rows[0]["outcome"] == "To('stored', size=3)"


def test_a_scan_is_run_and_looked_at(cli: Cli) -> None:
    dry = cli("reconcilers", "run", "objects", "--dry-run", "--limit", "2")
    assert dry.out.splitlines()[1:] == [
        "'object 0'  1",
        "'object 1'  2",
        "objects: 2 items, and there are more (--limit); would call remove",
    ]
    result = cli("reconcilers", "run", "objects", "--limit", "2")
    assert (result.code, "stopped; the next process" in result.out) == (0, True)
    assert "cursor     1\n" in cli("reconcilers", "show", "objects").out
    result = cli("reconcilers", "run", "objects")
    assert result.code == 1
    assert result.out.startswith("objects: 5 items, 1 failed; took ")


def test_a_paused_one_is_not_run_unless_forced(cli: Cli) -> None:
    assert cli("reconcilers", "pause", "recover", "--reason", "storage\x1b is down").code == 0
    refused = cli("reconcilers", "run", "recover")
    assert refused.code == 2
    assert r"is paused (storage\x1b is down); resume it, or force the run" in refused.err
    assert "10 rows" in cli("reconcilers", "run", "recover", "--force").out
    assert cli("reconcilers", "run", "recover", "--force", "--dry-run").code == 2


def test_a_run_needs_the_app_that_declares_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("reconcilers", "run", "publish")
    monkeypatch.delenv("TRUEUP_APP")
    result = cli("reconcilers", "run", "publish")
    assert result.code == 2
    assert "but this App does not declare it; give the --app that does" in result.err


@pytest.mark.slow
def test_an_interrupted_run_ends_in_order(start: Start, project: Path, query: Query) -> None:
    query("update papers set state = 'slow'")
    process = start("reconcilers", "run", "wait", "--json")
    wait_until(lambda: (project / "begun").exists(), "a handler has begun")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: query("select count(*) from trueup.rows") == [(1,)], "the others were given back")
    (project / "go").touch()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert json.loads(out) == {"reconciler": "wait", "ending": "interrupted", "done": 0}
    assert err == "stopping; a second signal interrupts handlers\n"
    assert query("select count(*) from papers where state = 'stored'") == [(1,)]
    assert query("select count(*) from trueup.rows") == [(0,)]


@pytest.mark.slow
def test_a_second_signal_interrupts_handlers_and_their_rows_go_back(start: Start, project: Path, query: Query) -> None:
    query("update papers set state = 'slow'")
    process = start("reconcilers", "run", "wait")
    wait_until(lambda: (project / "begun").exists(), "a handler has begun")
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: query("select count(*) from trueup.rows") == [(1,)], "the others were given back")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "wait: stopped after 0; rows that were not started were released\n"), err
    assert query("select state, attempt from trueup.rows") == [
        ("resting", 0)
    ]  # it had begun: its idempotency key is kept
    assert query("select count(*) from papers where state = 'slow'") == [(19,)]


@pytest.mark.slow
def test_on_a_terminal_there_is_a_bar_and_lists_fit_its_width(project: Path, database_url: str, query: Query) -> None:
    ran = on_terminal(project, database_url, "reconcilers", "run", "move-papers-trial")
    assert "━" in ran
    assert "move-papers-trial: 5 rows in " in ran
    listed = on_terminal(project, database_url, "reconcilers", "list", columns=80)
    assert max(len(line) for line in listed.splitlines() if "\x1b" not in line) <= 80
    query("update trueup.reconcilers set state = 'paused', note = 'why'")
    refused = on_terminal(project, database_url, "reconcilers", "run", "move-papers-trial")
    assert "━" not in refused


# -- pause and resume -------------------------------------------------------------------------------------------------


def test_pausing_and_resuming_say_when_nothing_changed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("reconcilers", "pause", "recover", "--reason", "not now").out == "paused reconciler recover\n"
    monkeypatch.delenv("TRUEUP_APP")
    assert "paused: not now" in cli("reconcilers", "list").out
    again = cli("reconcilers", "pause", "recover", "--json")
    assert (again.code, again.json) == (0, {"reconciler": "recover", "paused": True, "changed": False})
    resumed = {"reconciler": "recover", "resumed": True, "changed": True}
    assert cli("reconcilers", "resume", "recover", "--json").json == resumed
    assert (
        cli("reconcilers", "resume", "recover").err
        == "unchanged: it is not paused, and its circuit breaker is closed\n"
    )


def test_a_scan_cannot_be_paused(cli: Cli) -> None:
    result = cli("reconcilers", "pause", "objects")
    assert (result.code, "scans cannot be paused" in result.err) == (2, True)


# -- status -----------------------------------------------------------------------------------------------------------


def test_the_status_counts_reconcilers_and_quarantine(cli: Cli) -> None:
    assert "Reconcilers" not in cli("status").out
    cli("reconcilers", "run", "recover")
    cli("reconcilers", "run", "publish")
    cli("reconcilers", "pause", "publish")
    shown = cli("status")
    assert "# Reconcilers; 1 row in quarantine: trueup reconcilers quarantine list" in shown.out
    seen = cli("status", "--json").json["reconcilers"]
    assert {name: seen[name] for name in ("active", "paused", "resting", "quarantined")} == {
        "active": 1,
        "paused": 1,
        "resting": 0,
        "quarantined": 1,
    }


def test_a_run_with_refused_rows_takes_the_others_and_prints_no_traceback(cli: Cli, query: Query) -> None:
    query("create function refuse() returns trigger language plpgsql as $$ begin raise 'not this one'; end $$")
    trigger = "create trigger refuse before update on papers for each"
    query(f"{trigger} row when (old.id = 103) execute function refuse()")
    result = cli("reconcilers", "run", "move-papers-trial", "--json")
    assert (result.code, "Traceback" in result.err) == (0, False)
    outcomes = json.loads(result.out)["outcomes"]
    assert (outcomes["changed"], outcomes["retry"]) == (4, 1)
    query("update trueup.rows set attempt = 3, due_at = now()")
    assert cli("reconcilers", "run", "move-papers-trial").code == 1
    assert "not this one (SQLSTATE P0001)" in cli("reconcilers", "quarantine", "list").out
    query("insert into papers values (106, 'trial', now() - interval '20 d')")
    query(f"{trigger} statement execute function refuse()".replace("refuse ", "refuse_all ", 1))
    result = cli("reconcilers", "run", "move-papers-trial")
    assert (result.code, "Traceback" in result.err) == (2, False)
    assert "PostgreSQL refuses the statement: not this one (SQLSTATE P0001)" in result.err


def test_a_removed_reconciler_is_forgotten(cli: Cli, query: Query) -> None:
    query(
        "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)"
        " select 'renamed', n::text, 'quarantined', 'infinity', n, 1, now(), now() from generate_series(1, 3) as n"
    )
    query(
        "insert into trueup.reconcilers (name, place, declared, declared_at) values ('renamed', 'papers', '{}', now())"
    )
    forgotten = cli("reconcilers", "forget", "renamed", "--yes")
    assert "forgot reconciler renamed, and its records about 3 rows" in forgotten.out
    assert "renamed" not in cli("reconcilers", "list").out
    again = cli("reconcilers", "forget", "renamed", "--json", "--yes")
    assert "no reconciler is called 'renamed'" in again.err


@pytest.mark.slow
def test_sweeps_that_fail_are_in_every_list_with_their_error_until_one_works(
    cli: Cli, start: Start, project: Path, query: Query
) -> None:
    (project / "shop.py").write_text(PAPERS.replace('every="5m", concurrency=2', 'every="200ms", concurrency=2'))

    def failures() -> int:
        ((found,),) = query("select coalesce(max(failures), 0) from trueup.reconcilers where name = 'recover'")
        return int(found)

    def listed(name: str) -> dict[str, Any]:
        (found,) = [each for each in cli("reconcilers", "list", "--json").json if each["name"] == name]
        return dict(found)

    start("worker")
    swept = "select name from trueup.reconcilers where name = 'recover' and last_swept_at is not null"
    wait_until(lambda: query(swept), "the first sweep")
    query("alter table papers rename to elsewhere")
    wait_until(lambda: failures() >= 2, "two sweeps that failed")
    error = "there is no such table"
    assert error in listed("recover")["last_error"]
    assert "failing: " in cli("reconcilers", "list").out
    assert error in cli("reconcilers", "show", "recover").out
    status, checked = cli("status"), cli("status", "--check")
    assert (status.code, checked.code) == (1, 1)
    assert "recover" in status.out + status.err
    assert error in checked.out
    report = cli("recovery").out
    assert "failing" in report or "sweeps of recover fail" in report
    query("alter table elsewhere rename to papers")
    wait_until(lambda: failures() == 0, "a sweep that works")
    assert listed("recover")["last_error"] is None
