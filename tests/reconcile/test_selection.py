from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from trueup import ConfigError
from trueup.reconcile.selection import Order, Selection
from trueup.reconcile.table import TableSpec

WHO = "reconciler 'fix'"
FULL = TableSpec.of("things", "id", "state", "changed_at")
BARE = TableSpec.of("things", "id")


class Mood(Enum):
    GOOD = "good"
    SEVEN = 7


def test_states_are_texts_whatever_they_were_and_each_is_there_once() -> None:
    selection = Selection.of(WHO, FULL, ["new", Mood.GOOD, 7, Mood.SEVEN, "new"])
    assert selection.states == ("new", "good", "7")


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ({}, Order()),
        ({"stale_for": "10m"}, Order("changed_at")),
        ({"due_at": "due"}, Order("due")),
        ({"due_at": "due", "order_by": "n"}, Order("n")),
        ({"order_by": "n desc"}, Order("n", descending=True)),
        ({"order_by": " n  DESC "}, Order("n", descending=True)),
        ({"order_by": "n asc"}, Order("n")),
        ({"order_by": "created at"}, Order("created at")),
        ({"order_by": "created at desc"}, Order("created at", descending=True)),
    ],
)
def test_rows_come_in_the_order_asked_for_or_the_longest_due_first(given: dict[str, Any], order: Order) -> None:
    assert Selection.of(WHO, FULL, ["new"], **given).order == order


@pytest.mark.parametrize(
    ("table", "states", "given", "said"),
    [
        (FULL, [], {}, "name its states"),
        (BARE, ["new"], {}, "declared without state="),
        (FULL, ["new"], {"stale_for": "1m", "due_at": "due"}, "not both"),
        (BARE, [], {"stale_for": "1m"}, "give changed_at="),
        (FULL, ["new"], {"due_at": ""}, "a name is needed"),
        (FULL, ["new"], {"order_by": ""}, "a name is needed"),
        (FULL, ["new"], {"claimed_as": "new"}, "use a different one"),
        (BARE, [], {"claimed_as": "working"}, "needs a table declared with state="),
        (FULL, ["new"], {"stale_for": "soon"}, "soon"),
        (FULL, ["nul\0"], {}, "cannot store this text"),
        (FULL, [True], {}, "a text or a whole number"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    table: TableSpec, states: list[Any], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        Selection.of(WHO, table, states, **given)
    assert said in str(raised.value)


def test_it_says_which_rows_it_is_about() -> None:
    narrowed = TableSpec.of("app.things", "id", "state", "changed_at", where="n > 0")
    shown = str(Selection.of(WHO, narrowed, ["new", "old"], stale_for=timedelta(minutes=10)))
    assert shown == "app.things: new or old, unchanged for 10m, n > 0"
    assert str(Selection.of(WHO, BARE, [], due_at="due")) == "things: all rows, due has come"


@pytest.mark.parametrize(
    ("where", "options", "anywhere"),
    [
        (None, {}, False),  # only a write adds a row
        (None, {"order_by": "note"}, False),
        (None, {"stale_for": "1h"}, False),
        (None, {"stale_for": "1h", "order_by": "changed_at desc"}, False),
        (None, {"stale_for": "1h", "order_by": "note"}, True),
        (None, {"due_at": "due"}, False),
        (None, {"due_at": "due", "order_by": "due"}, False),
        (None, {"due_at": "due", "order_by": "changed_at"}, True),
        ("until < now()", {}, True),
        ("until < CURRENT_DATE", {"due_at": "due"}, True),
        ("note <> ''", {"due_at": "due"}, False),
    ],
)
def test_time_adds_rows_in_the_middle_unless_the_order_is_that_of_due_times(
    where: str | None, options: dict[str, Any], anywhere: bool
) -> None:
    table = TableSpec.of("t", "id", "state", changed_at="changed_at", where=where)
    assert Selection.of("r", table, ["new"], **options).due_anywhere is anywhere
