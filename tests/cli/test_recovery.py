from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.support import warm
from trueup.cli.recovery import bars

Execute = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def execute(database_url: str) -> Execute:
    def execute(query: str, *params: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), params)
            return cursor.fetchall() if cursor.description else []

    return execute


@pytest.fixture
def downtime(cli: Cli, execute: Execute) -> tuple[datetime, datetime]:
    """Four hours without a worker: three ticks coalesced, one fired late, rows late; all caught up with since."""
    until = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    since = until - timedelta(hours=4)
    execute("insert into trueup.downtimes values (%s, %s)", since, until)
    first = since + timedelta(minutes=30)
    cron = f"{first.minute} * * * *"
    assert cli("schedules", "create", "hourly", "add", "[1]", "--cron", cron).code == 0
    ticks = [first + timedelta(hours=hours) for hours in range(5)]
    execute("update trueup.schedule_versions set since = %s", first - timedelta(minutes=1))
    insert = "insert into trueup.ticks values ('hourly', %s, %s, %s, %s, %s, null, 1, %s)"
    execute(insert, ticks[0], ticks[2], 3, "skipped", "coalesced", until)
    execute(insert, ticks[3], ticks[3], 1, "fired", None, until)
    execute(insert, ticks[4], ticks[4], 1, "fired", None, ticks[4])
    declare = "insert into trueup.reconcilers (name, place, declared, declared_at, last_swept_at) values ('observe', 'p', '{}', now(), now())"
    execute(declare)
    execute(
        "insert into trueup.sweeps (reconciler, holder, started_at, ended_at, claimed, changed, unchanged, conflict, retry, "
        "quarantined, lost, late, worst_lateness_s, total_lateness_s, lateness) values ('observe', gen_random_uuid(), %s, %s, "
        "412, 400, 4, 3, 2, 1, 2, 412, 12600, 2595600, '{0,0,0,0,0,2,410,0,0}')",
        until,
        until + timedelta(seconds=8),
    )
    return since, until


def test_without_anything_to_tell_it_is_one_line(cli: Cli) -> None:
    result = cli("recovery")
    assert (result.code, result.out) == (0, "no worker has run yet; nothing is overdue\n")
    assert re.match(r"from \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ to ", result.err)


def test_a_downtime_that_is_caught_up_with(cli: Cli, downtime: tuple[datetime, datetime]) -> None:
    result = cli("recovery")
    assert result.code == 0, result
    told = result.out.splitlines()[-1]
    assert told.startswith("down ")
    assert told.endswith(
        "(4h); 4 ticks missed: 1 fired late, 3 coalesced; 412 rows late, worst 3h30m, average 1h45m; "
        "caught up, as far as is known: remaining rows were not counted"
    )
    lines = [line.split() for line in result.out.splitlines()]
    assert ["observe", "412", "3h30m", "1h45m", "·····▁█··"] in lines
    assert ["hourly", "5", "1", "1", "3", "0", "0", "30m", "15m"] in lines


def test_the_document_has_every_number(cli: Cli, downtime: tuple[datetime, datetime]) -> None:
    result = cli("recovery", "--json")
    assert result.code == 0, result
    found = result.json
    since, until = downtime
    assert found["caught_up"] is True
    assert "; caught up" in found["summary"]
    assert found["downtimes"] == [{"since": since.isoformat(), "until": until.isoformat(), "seconds": 14400.0}]
    (schedule,) = found["schedules"]
    assert {name: schedule[name] for name in ("due", "on_time", "late", "missed", "coalesced", "behind")} == {
        "due": 5,
        "on_time": 1,
        "late": 1,
        "missed": 4,
        "coalesced": 3,
        "behind": False,
    }
    assert schedule["skipped"] == {"coalesced": 3}
    (reconciler,) = found["reconcilers"]
    assert reconciler["outcomes"]["claimed"] == 412
    assert (reconciler["late"], reconciler["average_lateness_s"]) == (412, 6300.0)
    assert (reconciler["rows_per_second"], reconciler["backlog"], reconciler["eta_s"]) == (410 / 8, None, None)
    assert reconciler["lateness"][5:7] == [{"up_to_s": 3600.0, "rows": 2}, {"up_to_s": 21600.0, "rows": 410}]
    assert reconciler["lateness"][-1]["up_to_s"] is None
    assert found["overdue"] == []


def test_while_something_is_behind_the_exit_code_says_so(cli: Cli, execute: Execute) -> None:
    assert cli("jobs", "enqueue", "add", "[1]").code == 0
    assert cli("recovery").code == 0
    execute("update trueup.jobs set run_at = now() - interval '2 h'")
    result = cli("recovery")
    assert result.code == 1
    assert result.out.splitlines()[-1] == "no worker has run yet; catching up: 1 job overdue, the oldest by 2h"
    assert cli("recovery", "--json").code == 1


def test_why_ticks_were_skipped_is_said_below_the_table(
    cli: Cli, downtime: tuple[datetime, datetime], execute: Execute
) -> None:
    execute("update trueup.ticks set reason = 'still running' where outcome = 'skipped'")
    assert "hourly: skipped: 3 still running\n" in cli("recovery").out


def test_a_tick_that_is_missing_is_pointed_out(cli: Cli, downtime: tuple[datetime, datetime], execute: Execute) -> None:
    execute("delete from trueup.ticks where outcome = 'skipped'")
    result = cli("recovery")
    assert result.code == 1
    assert "hourly: 3 unaccounted for; trueup audit lists them\n" in result.out


def test_schedules_that_had_nothing_to_make_up_for_are_a_number(
    cli: Cli, downtime: tuple[datetime, datetime], execute: Execute
) -> None:
    assert cli("schedules", "create", "quiet", "add", "[1]", "--cron", "0 0 1 1 *").code == 0
    shown = cli("recovery").out
    assert "# Schedules (1 more had every tick on time)" in shown
    assert "\nquiet" not in shown


def test_on_a_narrow_terminal_every_number_is_there(
    downtime: tuple[datetime, datetime], project: Path, database_url: str
) -> None:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-W", "error", "-m", "trueup.cli", "recovery", "--database-url", database_url]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "TRUEUP_APP": "shop:app"}
    with warm.Popen(command, cwd=project, env=environment, stdout=terminal, stderr=subprocess.DEVNULL) as started:
        os.close(terminal)
        written = b""
        while piece := _read(controller):
            written += piece
        assert started.wait(30) == 0
    os.close(controller)
    text = re.sub(r"\x1b\[[0-9;]*m", "", written.decode()).replace("\r\n", "\n")
    assert max(map(len, text.splitlines())) <= 80
    assert "hourly" in text
    assert "·····▁█··" in text
    assert "caught up" in text


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 4096)
    except OSError:  # how Linux says that the other end is closed
        return b""


def test_how_far_back_needs_a_unit(cli: Cli) -> None:
    result = cli("recovery", "--since", "24")
    assert result.code == 2
    assert "has no unit" in result.err


@pytest.mark.parametrize(
    ("counts", "drawn"),
    [([], ""), ([0, 0], "··"), ([1], "█"), ([1, 1000], "▁█"), ([0, 500, 1000], "·▄█"), ([8, 4, 2, 1], "█▄▂▁")],
    ids=str,
)
def test_the_highest_bar_is_for_the_largest_number_and_only_nothing_has_none(counts: list[int], drawn: str) -> None:
    assert bars(counts) == drawn
