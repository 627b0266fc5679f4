from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO

import orjson
import pytest
from rich.console import Console

from trueup.cli import actions, listing, reconcilers, schedules
from trueup.cli.output import LEAST, Heading, TextTable, drawn, plain, write_json

JOBS = TextTable(
    "Jobs",
    [Heading("id", right=True), Heading("kind"), Heading("error", wide=True)],
    [(7, "send", "ValueError: " + "long " * 40), (4711, "send_all", None)],
)


def on_terminal(table: TextTable, width: int) -> list[str]:
    stream = StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    console.print(drawn(table, width, titled=False), crop=False)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_in_a_pipe_nothing_is_cut_off() -> None:
    header, first, second = plain(JOBS, titled=False).splitlines()
    assert header == "  ID  KIND      ERROR"
    assert first.startswith("   7  send      ValueError: long long")
    assert len(first) > 200
    assert second == "4711  send_all"


def test_on_a_narrow_terminal_only_the_wide_column_is_cut() -> None:
    header, _, first, second = on_terminal(JOBS, 40)
    assert header.split() == ["id", "kind", "error"]
    assert first.startswith("   7  send      ValueError:")
    assert first.endswith("…")
    assert len(first) == 40
    assert second == "4711  send_all"


@pytest.mark.parametrize("width", [40, 70, 80, 100])
@pytest.mark.parametrize("columns", [listing.COLUMNS, reconcilers.COLUMNS, schedules.COLUMNS, actions.COLUMNS], ids=len)
def test_long_names_leave_no_column_of_a_list_out(columns: tuple[Heading, ...], width: int) -> None:
    for place, column in enumerate(columns):
        if not column.wide:
            continue
        row = [f"<{number}>" for number in range(len(columns))]
        row[place] = f"<{place}> " + "x" * 300
        line = on_terminal(TextTable("Any", columns, [row]), width)[-1]
        assert [each for each in row if each[:3] not in line] == [], line
        assert len(line) <= max(width, len("  ".join(heading.title for heading in columns)) + LEAST)


def test_a_cell_cannot_draw_markup_or_break_its_row() -> None:
    hostile = TextTable("Jobs", [Heading("error", wide=True)], [("[red]x[/red]\nsecond\x1b[2J",)])
    for lines in (on_terminal(hostile, 80), plain(hostile, titled=False).splitlines()):
        assert lines[-1] == r"[red]x[/red]\nsecond\x1b[2J"


def test_an_empty_table_says_what_is_missing() -> None:
    assert plain(TextTable("Jobs", [Heading("id")], empty="no jobs"), titled=True) == "# Jobs\nno jobs"


def test_json_holds_what_the_database_gives(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"at": datetime(2025, 6, 1, tzinfo=UTC), "for": timedelta(seconds=5), "ids": {2, 1}, "text": "ü\x9b"})
    out = capsys.readouterr().out
    assert orjson.loads(out) == {"at": "2025-06-01T00:00:00+00:00", "for": 5.0, "ids": [1, 2], "text": "ü\x9b"}
    assert "\x9b" not in out


def test_integers_beyond_64_bits_can_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"big": 2**70})
    assert str(2**70) in capsys.readouterr().out
