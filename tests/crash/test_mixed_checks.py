"""The checks of `make chaos` over leases, purges, scans and users' transactions: each goes red on a planted violation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.crash.mixed_checks import (
    deletions_last,
    fenced_terms_grow,
    passes_cover_everything,
    purges_take_what_they_may,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def second(n: float) -> datetime:
    return NOON + timedelta(seconds=n)


WRITES = [("a", 1, 10), ("b", 7, 10), ("a", 1, 10), ("a", 2, 11), ("a", 5, 10), ("b", 8, 11)]
PASSES = [(second(0), second(10)), (second(20), second(30))]
ENDED = {0: [second(1), second(21)], 1: [second(2), second(9), second(29)]}


def test_clean_histories_have_no_violation() -> None:
    assert fenced_terms_grow(WRITES) == []
    assert purges_take_what_they_may([("1", "initiated")], [], []) == []
    assert passes_cover_everything(PASSES, ENDED, 2) == []
    assert passes_cover_everything(PASSES, ENDED, 3, failed={2}) == []
    assert deletions_last([("tasks_lease", 1)], {("tasks_lease", 2)}) == []


@pytest.mark.parametrize(
    ("check", "planted"),
    [
        (fenced_terms_grow, ([*WRITES, ("a", 4, 11)],)),
        (fenced_terms_grow, ([*WRITES, ("a", 5, 11)],)),
        (purges_take_what_they_may, ([("1", "uploading")], [], [])),
        (purges_take_what_they_may, ([("1", "initiated")], ["2"], [])),
        (purges_take_what_they_may, ([("1", "initiated")], [], ["3"])),
        (passes_cover_everything, (PASSES, {**ENDED, 1: [second(2)]}, 2)),
        (passes_cover_everything, (PASSES, {**ENDED, 1: [second(2), second(15)]}, 2)),
        (passes_cover_everything, (PASSES, ENDED, 3)),
        (passes_cover_everything, (PASSES, ENDED, 4, {2})),
        (deletions_last, ([("tasks_lease", 1)], {("tasks_lease", 1)})),
    ],
)
def test_each_check_finds_what_is_planted_for_it(check: Any, planted: tuple[Any, ...]) -> None:
    assert check(*planted)
