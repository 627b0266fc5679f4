from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.support.waiting import wait_until

Start = Callable[..., subprocess.Popen[str]]


def create(cli: Cli, name: str = "sums", *options: str) -> None:
    result = cli("schedules", "create", name, "add", '{"a": 1}', *(options or ("--every", "1h")))
    assert (result.code, result.out) == (0, f"created schedule {name}\n"), result


def show(cli: Cli, name: str = "sums") -> dict[str, Any]:
    return dict(cli("schedules", "show", name, "--json").json)


def test_without_schedules_the_list_says_so_and_where_those_in_the_code_are(cli: Cli, project: Path) -> None:
    assert cli("schedules", "list").out == "no schedules\n"
    assert cli("schedules", "list", "--json").json == []
    (project / "nights.py").write_text("from shop import add, app\n\n@app.cron('@daily')\ndef nightly() -> None: ...\n")
    told = cli("schedules", "list", "--app", "nights:app").out
    assert told == "no schedules; a worker stores those in the code when it starts: nightly\n"


def test_a_schedule_is_made_listed_and_shown(cli: Cli) -> None:
    create(cli, "sums", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--missed", "all", "--catch-up", "2h")
    (listed,) = cli("schedules", "list", "--json").json
    assert (listed["name"], listed["state"], listed["origin"]) == ("sums", "active", "people")
    assert listed["spec"] == {"kind": "cron", "expr": "30 2 * * *", "tz": "Europe/Berlin", "dst": "debian"}
    line = cli("schedules", "list").out.splitlines()[1]
    assert line.startswith("sums      30 2 * * * Europe/Berlin  active  in ")
    shown = cli("schedules", "show", "sums").out
    assert "missed=all, catch_up=2h" in shown
    assert "no tick yet" in shown
    assert show(cli)["args"] == {"a": 1}


def test_without_a_terminal_deleting_and_backfilling_a_schedule_need_yes(cli: Cli) -> None:
    create(cli)
    hours = [f"{datetime.now(UTC) - timedelta(hours=back):%Y-%m-%dT%H:%MZ}" for back in (5, 2)]
    for command in (["delete", "sums"], ["backfill", "sums", "--start", hours[0], "--end", hours[1]]):
        result = cli("schedules", *command)
        assert (result.code, "give --yes" in result.err) == (2, True), command
    assert (show(cli)["name"], show(cli)["ticks"]) == ("sums", [])


def test_arguments_that_do_not_fit_the_job_are_refused(cli: Cli) -> None:
    result = cli("schedules", "create", "sums", "add", '{"a": "one"}', "--every", "1h")
    assert result.code == 2
    assert cli("schedules", "list", "--json").json == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give the rule: --cron, --every or --at"),
        (("--cron", "60 * * * *"), "minute"),
        (("--cron", "* * * * *", "--tz", "../../etc/passwd"), "zone"),
        (("--cron", "* * * * *", "--dst", "odd"), 'it is "debian" or "literal"'),
        (("--every", "1h", "--at", "2031-01-01T00:00Z"), "give one of"),
        (("--every", "1h", "--tz", "UTC"), "--tz and --dst go with --cron"),
        (("--at", "tomorrow"), "write it like 2031-01-01T09:00Z"),
        (("--at", "2031-01-01T00:00"), "has no time zone"),
        (("--every", "1h", "--missed", "some"), 'it is "latest", "all" or "skip"'),
        (("--every", "1h", "--overlap", "queue_one"), "with limit=1"),
    ],
)
def test_what_is_wrong_with_a_new_schedule_is_said(cli: Cli, options: tuple[str, ...], said: str) -> None:
    result = cli("schedules", "create", "sums", "add", "[1]", *options)
    assert result.code == 2
    assert said in result.err


def test_a_name_that_is_taken_is_refused(cli: Cli) -> None:
    create(cli)
    result = cli("schedules", "create", "sums", "add", "[2]", "--every", "5m")
    assert (result.code, result.out) == (2, "")
    assert "a schedule is called 'sums' already" in result.err


def test_an_edit_changes_what_is_given(cli: Cli) -> None:
    create(cli, "sums", "--every", "1h", "--jitter", "5m")
    assert (
        cli("schedules", "edit", "sums", "--every", "2h", "--job", "add", "--arg", "a:=7").out
        == "edited schedule sums\n"
    )
    assert cli("schedules", "edit", "sums", "--every", "2h", "--json").json == {"schedule": "sums", "unchanged": True}
    shown = show(cli)
    assert (shown["spec"]["interval"], shown["policy"], shown["args"]) == ("2h", {"jitter": "5m"}, {"a": 7})
    assert cli("schedules", "edit", "sums", "--arg", "a:=8").code == 2


def test_pausing_and_resuming_say_when_nothing_changed(cli: Cli) -> None:
    create(cli)
    assert cli("schedules", "pause", "sums", "--reason", "not now").out == "paused schedule sums\n"
    assert "not now" in cli("schedules", "show", "sums").out
    again = cli("schedules", "pause", "sums", "--json")
    assert (again.code, again.json) == (0, {"schedule": "sums", "paused": True, "changed": False})
    resumed = {"schedule": "sums", "resumed": True, "changed": True}
    assert cli("schedules", "resume", "sums", "--json").json == resumed
    assert cli("schedules", "resume", "sums").err == "unchanged: it is not paused\n"


@pytest.mark.parametrize("state", ["retired", "finished"])
@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_schedule_without_more_ticks_is_neither_paused_nor_resumed(
    cli: Cli, database_url: str, state: str, verb: str
) -> None:
    """An exit code of 0 would say that it fires again."""
    create(cli)
    with psycopg.connect(database_url) as connection:
        connection.execute("update trueup.schedules set state = %s", [state])
    result = cli("schedules", verb, "sums")
    assert result.code == 2
    assert result.err.startswith(f"error: schedule 'sums' cannot be {verb}d: it ")


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "delete", "trigger", "edit", "preview"])
def test_a_name_that_is_none_is_not_found(cli: Cli, verb: str) -> None:
    result = cli("schedules", verb, "nothing", *(["--yes"] if verb == "delete" else []))
    assert result.code == 1
    assert result.err.startswith("error: no schedule is called 'nothing'; none is known yet")


def test_a_deleted_schedule_is_gone(cli: Cli) -> None:
    create(cli)
    assert cli("schedules", "delete", "sums", "--yes").out == "deleted schedule sums\n"
    assert cli("schedules", "list", "--json").json == []


def test_a_triggered_run_is_a_job_with_the_arguments_of_the_schedule(cli: Cli, run_due: Callable[[], int]) -> None:
    create(cli)
    job_id = cli("schedules", "trigger", "sums", "--json").json["job_id"]
    assert run_due() == 1
    assert cli("jobs", "show", job_id, "--json").json["result"] == 3
    (tick,) = show(cli)["ticks"]
    assert (tick["outcome"], tick["reason"], tick["run"]) == ("fired", "triggered", "done")
    assert "fired, run done: triggered" in cli("schedules", "list").out


def test_a_backfill_fires_a_range_once(cli: Cli) -> None:
    create(cli)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    span = ("--start", (now - timedelta(hours=3)).isoformat(), "--end", now.isoformat())
    dry = cli("schedules", "backfill", "sums", *span, "--dry-run")
    assert dry.out.startswith("would fire 4 of 4 ticks of schedule sums\n")
    assert len(cli("schedules", "backfill", "sums", *span, "--dry-run", "--json").json["to_fire"]) == 4
    assert cli("jobs", "list", "--json").json == []
    assert cli("schedules", "backfill", "sums", *span, "--yes").out == "fired 4 ticks of schedule sums\n"
    assert cli("schedules", "backfill", "sums", *span, "--json", "--yes").json == {"schedule": "sums", "fired": 0}
    assert len(cli("jobs", "list", "--json").json) == 4
    future = ("--start", now.isoformat(), "--end", (now + timedelta(hours=5)).isoformat())
    result = cli("schedules", "backfill", "sums", *future, "--yes")
    assert result.code == 2
    assert "is in the future" in result.err


def test_a_preview_of_a_rule_needs_no_database(bare_cli: Cli) -> None:
    result = bare_cli("schedules", "preview", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--year", "2027")
    assert result.code == 0
    assert (
        "2027-03-28 02:30:00  gap     2027-03-28 01:00:00Z  clocks skip it: due once, right after the gap" in result.out
    )
    assert "2027-10-31 02:30:00  fold    2027-10-31 00:30:00Z  clocks show it twice: due the first time" in result.out
    assert "2027-01-01 01:30:00Z  Fri 2027-01-01 02:30:00 CET" in result.out
    assert "tzdata 20" in result.err


def test_a_preview_as_json_and_of_what_clocks_do_not_touch(cli: Cli) -> None:
    literal = cli(
        "schedules",
        "preview",
        "--cron",
        "30 2 * * *",
        "--tz",
        "Europe/Berlin",
        "--dst",
        "literal",
        "--year",
        "2027",
        "--json",
    )
    assert [(each["clocks"], len(each["ticks"])) for each in literal.json["touched"]] == [("gap", 0), ("fold", 2)]
    create(cli)
    stored = cli("schedules", "preview", "sums", "--year", "2027", "--json").json
    assert (stored["spec"]["kind"], stored["first"][0], stored["touched"]) == ("every", "2027-01-01T00:00:00+00:00", [])
    assert "moved clocks do not touch it" in cli("schedules", "preview", "--cron", "0 12 * * *", "--year", "2027").out
    assert "no tick in 2027" in cli("schedules", "preview", "--at", "2031-01-01T00:00Z", "--year", "2027").out


def test_a_preview_takes_a_name_or_a_rule_and_a_year_of_the_calendar(cli: Cli) -> None:
    assert cli("schedules", "preview").code == 2
    assert cli("schedules", "preview", "sums", "--every", "1h").code == 2
    assert "is not from" in cli("schedules", "preview", "--every", "1h", "--year", "0").err


def test_the_status_tells_of_schedules_once_there_are_any(cli: Cli) -> None:
    assert "Schedules" not in cli("status").out
    create(cli)
    create(cli, "other", "--every", "2h")
    cli("schedules", "pause", "other")
    seen = cli("status", "--json").json["schedules"]
    assert (seen["active"], seen["paused"], seen["retired"]) == (1, 1, 0)
    assert 0 < seen["next_in_s"] <= 3600
    assert "# Schedules" in cli("status").out


@pytest.mark.slow
def test_a_refused_tick_is_shown_where_people_look(cli: Cli, database_url: str) -> None:
    create(cli)
    create(cli, "other")
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "insert into trueup.schedule_refusals"
            " select name, version, 'not this one', 3, now(), now() + interval '9 s' from trueup.schedules where name = 'sums'"
        )
    listed = {each["name"]: each["refused"] for each in cli("schedules", "list", "--json").json}
    assert (listed["sums"]["error"], listed["sums"]["refusals"], listed["other"]) == ("not this one", 3, None)
    assert "refused: not this one" in cli("schedules", "list").out
    assert "not this one (3 times, tried again at " in cli("schedules", "show", "sums").out
    status = cli("status")
    assert "schedule sums: PostgreSQL refuses its tick" in status.out
    assert status.code == 1
    cli("schedules", "pause", "sums")  # another version: the refusal is none of its
    assert cli("status").code == 0


def test_a_worker_follows_a_schedule_that_was_made_while_it_ran(cli: Cli, start: Start) -> None:
    worker = start("worker", TRUEUP_LOG_FORMAT="json")
    assert worker.stderr is not None
    for line in worker.stderr:
        if "worker started" in line:
            break
    create(cli, "sums", "--every", "1s")
    wait_until(lambda: any(tick["run"] == "done" for tick in show(cli)["ticks"]), "a tick was run", timeout=30)
    worker.terminate()
    worker.communicate(timeout=30)
    assert cli("audit").code == 0
