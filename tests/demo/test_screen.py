from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from rich.console import Console

from trueup.demo.books import Front, Messages
from trueup.demo.fleet import Condition
from trueup.demo.proof import Check
from trueup.demo.screen import LiveScreen, PlainScreen, _picture
from trueup.demo.view import DeliveryRate, View, WorkerView, hours

VIEW = View(
    Messages(due=2000, pending=1307, processing=14, completed=664, failed=12, dead=1, withdrawn=1),
    [
        WorkerView("A", Condition.WORKING, 10),
        WorkerView("B", Condition.KILLED, 4),
        WorkerView("C", Condition.FROZEN, 0),
    ],
    Front(timedelta(hours=14, minutes=42), "America/Argentina/Buenos_Aires"),
    per_second=58.6,
    resting=True,
    receiver_is_up=False,
    received=673,
    again=9,
)
CHECKS = [
    Check("names intact, quotes and 🎂", "≤ 24h30m", "1,998 sent, 1 dead, 1 gone", "database", True),
    Check("duplicates taken for new", "0", "3 (18 known by their key)", "receiver", False),
]


def console(width: int) -> Console:
    return Console(file=StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)


def written(to: Console) -> str:
    assert isinstance(to.file, StringIO)
    return to.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_picture_fits_the_terminal(width: int) -> None:
    to = console(width)
    to.print(_picture(VIEW, min(60, width - 34)))
    shown = written(to)
    assert "664 of 2,000 delivered" in shown
    assert "59 a second; now in America/Argentina/Buenos_Aires, where it is 14h42m late" in shown
    for words in ("A working", "B killed", "C frozen", "receiver", "down", "no worker sends", "failed, again soon"):
        assert words in shown
    assert "…" not in shown
    assert len(shown.rstrip().splitlines()) == 10


def test_a_picture_of_the_beginning_says_that_nothing_is_sent_yet() -> None:
    to = console(80)
    to.print(_picture(replace(VIEW, front=None), 46))
    assert "nothing sent yet" in written(to)


def test_each_line_of_the_proof_is_one_line_of_a_small_terminal() -> None:
    to = console(80)
    LiveScreen(to).proof(CHECKS)
    lines = [line.rstrip() for line in written(to).splitlines() if line.strip()]
    assert len(lines) == 1 + len(CHECKS)
    assert " ".join(lines[2].split()) == "✗ duplicates taken for new 0 3 (18 known by their key) receiver"


def test_a_terminal_that_knows_ascii_only_gets_nothing_else() -> None:
    to = Console(file=TextIOWrapper(BytesIO(), "ascii"), width=80)
    for screen in (PlainScreen(to), LiveScreen(to)):
        screen.proof(CHECKS)
        screen.say("Zoë closes the account")
        screen.conclude("Proved.", "green")
    to.file.flush()
    shown = to.file.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert "ok names intact, quotes and ?: expected <= 24h30m" in shown
    assert "NO" in shown


def test_names_are_no_markup() -> None:
    to = console(80)
    LiveScreen(to).say("[red]Robert[/]; :smile: {first_name} closes the account")
    assert "[red]Robert[/]; :smile: {first_name} closes the account" in written(to)


def test_the_pace_is_that_of_the_last_seconds() -> None:
    pace = DeliveryRate()
    assert pace.measure(0.0, 0) == 0.0
    assert [pace.measure(float(second), 60 * second) for second in (1, 2, 3, 4, 5)] == [60.0] * 5
    assert [round(pace.measure(float(second), 300)) for second in (6, 7, 8, 9)] == [40, 20, 0, 0]


def test_lengths_are_in_hours_and_minutes() -> None:
    assert hours(timedelta(hours=23, minutes=5, seconds=31)) == "23h06m"
    assert hours(timedelta(seconds=20)) == "0h00m"
