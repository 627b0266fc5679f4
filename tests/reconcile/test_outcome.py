from __future__ import annotations

import copy
import enum
import pickle
from datetime import timedelta
from typing import Any

import pytest

from trueup.errors import ConfigError
from trueup.jobs.job import Draft
from trueup.reconcile.outcome import Again, Delete, Stay, To, Unchanged, state_text

DRAFT = Draft("publish", "default", "default", "{}", 3)


class Status(enum.Enum):
    STORED = "stored"
    SECOND = 2
    YES = True
    PAIR = (1, 2)


class Level(enum.IntEnum):
    HIGH = 7


class Word(enum.StrEnum):
    DONE = "done"


class Old(str, enum.Enum):  # noqa: UP042 - written before StrEnum, and there are many
    DONE = "done"


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("stored", "stored"),
        ("", ""),
        ("mit Umlaut ä", "mit Umlaut ä"),
        (3, "3"),
        (-1, "-1"),
        (Status.STORED, "stored"),
        (Status.SECOND, "2"),
        (Level.HIGH, "7"),
        (Word.DONE, "done"),
        (Old.DONE, "done"),
    ],
)
def test_a_state_is_a_text_a_number_or_an_enum_of_such(state: Any, text: str) -> None:
    assert state_text(state) == text
    assert type(state_text(state)) is str
    assert To(state).state == text


@pytest.mark.parametrize(
    "state", [True, False, None, 1.5, b"stored", Status.YES, Status.PAIR, Status, "a\0b", "\ud800"]
)
def test_what_cannot_be_a_state_is_refused(state: Any) -> None:
    with pytest.raises(ConfigError, match="state "):
        state_text(state)
    with pytest.raises(ConfigError, match="state "):
        To(state)


def test_columns_may_be_called_like_anything() -> None:
    moved = To("stored", state="x", columns=1, self=2, more=3)
    assert moved.state == "stored"
    assert moved.columns == {"state": "x", "columns": 1, "self": 2, "more": 3}
    assert Stay(state="x", self=2).columns == {"state": "x", "self": 2}
    assert To("stored", {"then": 1, "upload-state": 2}, note=3).columns == {"then": 1, "upload-state": 2, "note": 3}
    assert Stay({"then": 1}, then=[DRAFT]).columns == {"then": 1}


def test_a_column_set_twice_or_without_a_name_is_refused() -> None:
    with pytest.raises(TypeError, match="column 'note' is set twice"):
        To("stored", {"note": 1}, note=2)
    with pytest.raises(TypeError, match="a mapping from names to values"):
        Stay([1])  # type: ignore[arg-type]


def test_an_enum_in_a_column_is_stored_as_its_value() -> None:
    assert To("x", word=Word.DONE, old=Old.DONE, level=Level.HIGH, pair=Status.PAIR).columns == {
        "word": "done",
        "old": "done",
        "level": 7,
        "pair": (1, 2),
    }
    assert type(Stay(old=Old.DONE).columns["old"]) is str


@pytest.mark.parametrize(
    "make", [lambda then: To("x", then=then), lambda then: Stay(then=then), lambda t: Delete(then=t)]
)
def test_then_takes_drafts_one_or_many(make) -> None:
    assert make(DRAFT).then == (DRAFT,)
    assert make([DRAFT, DRAFT]).then == (DRAFT, DRAFT)
    assert make(draft for draft in [DRAFT]).then == (DRAFT,)
    assert make([]).then == ()
    for wrong in (None, 5, "publish", [None], [("publish",)], print):
        with pytest.raises(TypeError, match=r"then= takes what job.call\(…\) gives, not"):
            make(wrong)


def test_again_takes_a_duration_with_its_unit() -> None:
    assert Again("10m").after == timedelta(minutes=10)
    assert Again(timedelta(seconds=1)) == Again("1s")
    for wrong in (10, "soon", None, timedelta(seconds=-1)):
        with pytest.raises(ConfigError):
            Again(wrong)  # type: ignore[arg-type]


OUTCOMES = [To("x", a=1, then=[DRAFT]), Stay(a=1), Delete(then=[DRAFT]), Unchanged(), Again("1m")]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_an_outcome_comes_back_whole_from_another_process(outcome: Any) -> None:
    for again in (pickle.loads(pickle.dumps(outcome)), copy.deepcopy(outcome), copy.copy(outcome)):
        assert again == outcome
        assert repr(again) == repr(outcome)


def test_outcomes_are_equal_when_they_mean_the_same() -> None:
    for one in OUTCOMES:
        assert [one == other for other in OUTCOMES].count(True) == 1
    assert To("x", a=1) != To("x", a=2) != To("y", a=2)
    assert To("x") != Stay()


def test_outcomes_are_shown_as_they_are_written() -> None:
    assert [repr(outcome) for outcome in OUTCOMES] == [
        "To('x', a=1, then=[publish])",
        "Stay(a=1)",
        "Delete(then=[publish])",
        "Unchanged()",
        "Again(60s)",
    ]
