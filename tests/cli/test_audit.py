from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Cli

Execute = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def execute(database_url: str) -> Execute:
    def execute(query: str, *params: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), params)
            return cursor.fetchall() if cursor.description else []

    return execute


@pytest.fixture
def hours(cli: Cli, execute: Execute) -> list[datetime]:
    """A schedule whose ticks of the last six hours were all fired; they are returned. The latest is half an hour ago."""
    latest = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)
    assert cli("schedules", "create", "hourly", "add", "[1]", "--cron", f"{latest.minute} * * * *").code == 0
    ticks = [latest - timedelta(hours=ago) for ago in reversed(range(6))]
    execute("update trueup.schedule_versions set since = %s", ticks[0] - timedelta(minutes=1))
    for tick in ticks:
        execute("insert into trueup.ticks values ('hourly', %s, %s, 1, 'fired', null, null, 1, now())", tick, tick)
    return ticks


def findings(cli: Cli, *options: str, code: int = 1) -> dict[str, Any]:
    result = cli("audit", "--json", *options)
    assert result.code == code, result
    (found,) = result.json["schedules"]
    assert result.json["clean"] is (code == 0)
    return dict(found)


def test_without_schedules_all_is_well(cli: Cli) -> None:
    result = cli("audit")
    assert (result.code, result.out) == (0, "no schedules in this period\n")
    assert result.err.startswith("every tick is accounted for, from ")


def test_a_full_ledger_is_clean(cli: Cli, hours: list[datetime]) -> None:
    found = findings(cli, code=0)
    assert (found["expected"], found["fired"], found["gaps"]) == (6, 6, [])
    assert cli("audit").out.splitlines()[1].split() == ["hourly", "6", "6", "0", "0", "0", "0", "0"]


def test_a_tick_without_a_row_is_a_gap(cli: Cli, hours: list[datetime], execute: Execute) -> None:
    execute("delete from trueup.ticks where due_at = any(%s)", hours[2:4])
    (gap,) = findings(cli)["gaps"]
    assert [datetime.fromisoformat(gap["first"]), datetime.fromisoformat(gap["last"])] == hours[2:4]
    shown = cli("audit")
    assert shown.code == 1
    assert f"hourly: gap: {hours[2]:%Y-%m-%d %H:%M:%SZ} to {hours[3]:%Y-%m-%d %H:%M:%SZ}, 2 ticks" in shown.out
    assert "not every tick is accounted for" in shown.err


def test_a_tick_before_the_time_asked_about_is_not_missed(cli: Cli, hours: list[datetime], execute: Execute) -> None:
    execute("delete from trueup.ticks where due_at = %s", hours[0])
    findings(cli, "--since", "4h", code=0)
    findings(cli, "--since", "1d")


@pytest.fixture
def short_memory(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEUP_KEEP_TICKS", "4h")


@pytest.mark.usefixtures("short_memory")
def test_what_is_older_than_the_ledger_is_kept_is_not_missed(cli: Cli, hours: list[datetime], execute: Execute) -> None:
    execute("delete from trueup.ticks where due_at = %s", hours[0])
    findings(cli, "--since", "7d", code=0)


def test_skipped_ticks_in_a_row_are_accounted_for(cli: Cli, hours: list[datetime], execute: Execute) -> None:
    execute("delete from trueup.ticks where due_at = any(%s)", hours[1:4])
    execute(
        "insert into trueup.ticks values ('hourly', %s, %s, 3, 'skipped', 'coalesced', null, 1, now())",
        hours[1],
        hours[3],
    )
    found = findings(cli, code=0)
    assert (found["fired"], found["skipped"]) == (3, 3)
    findings(cli, "--since", "4h", code=0)  # the range begins before


def test_nothing_is_expected_of_a_pause(cli: Cli, hours: list[datetime], execute: Execute) -> None:
    execute("delete from trueup.ticks where due_at = any(%s)", hours[1:3])
    a_minute = timedelta(minutes=1)
    add = "insert into trueup.schedule_versions select name, %s, %s, %s, spec from trueup.schedule_versions where version = 1"
    execute(add, 2, hours[0] + a_minute, "paused")
    execute(add, 3, hours[2] + a_minute, "active")
    assert findings(cli, code=0)["expected"] == 4


def test_a_deleted_schedule_is_judged_for_the_time_that_it_was_there(
    cli: Cli, hours: list[datetime], execute: Execute
) -> None:
    assert cli("schedules", "delete", "hourly", "--yes").code == 0
    assert findings(cli, code=0)["expected"] == 6
    execute("delete from trueup.ticks where due_at = %s", hours[4])
    assert findings(cli)["gaps"][0]["count"] == 1


def test_a_planner_that_is_behind_leaves_ticks_overdue(cli: Cli, hours: list[datetime], execute: Execute) -> None:
    execute("delete from trueup.ticks")
    execute("update trueup.schedules set decided_until = %s", hours[0])
    execute("update trueup.schedule_versions set since = %s", hours[0])
    found = findings(cli)
    assert (found["gaps"], [span["count"] for span in found["overdue"]]) == ([], [5])
    assert "does a worker run?" in cli("audit").out


def test_a_tick_that_nobody_asked_for_is_unexpected(cli: Cli, hours: list[datetime], execute: Execute) -> None:
    odd = hours[1] + timedelta(minutes=7)
    execute("insert into trueup.ticks values ('hourly', %s, %s, 1, 'fired', null, null, 1, now())", odd, odd)
    assert [datetime.fromisoformat(each) for each in findings(cli)["unexpected"]] == [odd]


def test_what_people_fired_besides_is_no_fault(cli: Cli, hours: list[datetime]) -> None:
    assert cli("schedules", "trigger", "hourly").code == 0
    start = hours[0] - timedelta(hours=2)
    assert (
        cli(
            "schedules", "backfill", "hourly", "--start", start.isoformat(), "--end", hours[1].isoformat(), "--yes"
        ).code
        == 0
    )
    found = findings(cli, code=0)
    assert (found["expected"], found["fired"]) == (6, 9)


def test_a_second_job_for_a_tick_and_a_job_for_none_are_astray(
    cli: Cli, hours: list[datetime], execute: Execute
) -> None:
    first = cli("schedules", "trigger", "hourly", "--json").json["job_id"]
    columns = (
        "kind, queue, lane, key, state, priority, run_at, rank, args, attempt, max_attempts, enqueued_at, schedule"
    )
    copy = f"insert into trueup.jobs ({columns}, due_at) select {columns}, {{}} from trueup.jobs where id = %s returning id"
    ((second,),) = execute(copy.format("due_at"), first)
    ((stray,),) = execute(copy.format("due_at - interval '1 minute'"), first)
    found = findings(cli)["astray"]
    assert {each["job_id"]: each["recorded"] for each in found} == {second: first, stray: None}
    shown = cli("audit").out
    assert f"job {second} for " in shown
    assert f"whose run is job {first}" in shown
    assert "which is not in the ledger" in shown


def test_a_schedule_of_a_newer_release_is_said_not_to_be_judged(
    cli: Cli, hours: list[datetime], execute: Execute
) -> None:
    execute("""update trueup.schedule_versions set spec = '{"kind": "lunar"}'""")
    assert "'lunar' is not known to this release" in findings(cli)["unreadable"]
    assert "hourly: not judged" in cli("audit").out


def test_the_time_asked_about_needs_a_unit(cli: Cli) -> None:
    result = cli("audit", "--since", "7")
    assert result.code == 2
    assert "has no unit" in result.err
