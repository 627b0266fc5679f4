"""The demo's proof: it must see each thing that can be wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apps.wallpapers.demo.books import Books

BALANCED = Books(
    states={"processing": 2, "failed": 1},
    announced=frozenset({"a.uploaded", "b.uploaded"}),
    keys=frozenset({"a/original.jpg", "b/original.jpg"}),
    objects=("a/original.jpg", "b/original.jpg"),
    messages=("a.uploaded", "b.uploaded"),
)
PLANNED = {"processing": 2, "failed": 1}


def test_books_that_balance_have_nothing_wrong() -> None:
    assert BALANCED.wrong(PLANNED) == []
    assert BALANCED.settled


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"states": {"processing": 2, "failed": 2}}, "1 rows are not where they belong"),
        ({"states": {"processing": 2}}, "1 rows are not where they belong"),
        ({"objects": ("a/original.jpg",)}, "1 rows without their object"),
        ({"objects": (*BALANCED.objects, "c/original.jpg")}, "1 objects without a row that needs them"),
        ({"messages": ("a.uploaded",)}, "1 rows without their message"),
        ({"messages": (*BALANCED.messages, "c.uploaded")}, "1 messages without a row"),
        ({"messages": (*BALANCED.messages, "a.uploaded")}, "1 messages are there twice"),
    ],
)
def test_whatever_does_not_agree_is_named(change: dict[str, Any], wrong: str) -> None:
    assert replace(BALANCED, **change).wrong(PLANNED) == [wrong]


def test_rows_that_wait_are_not_settled() -> None:
    assert not replace(BALANCED, states={"stored": 1}).settled
