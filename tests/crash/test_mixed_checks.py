"""The checks of `make chaos` beside those of jobs and rows: each goes red on a planted violation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.crash.mixed_checks import (
    both_releases_worked,
    deletions_last,
    events_are_delivered,
    fenced_terms_grow,
    passes_cover_everything,
    purges_take_what_they_may,
    rows_have_their_jobs,
    sessions_are_clean,
)
from tests.support.pgbouncer import Session

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def second(n: float) -> datetime:
    return NOON + timedelta(seconds=n)


WRITES = [("a", 1, 10), ("b", 7, 10), ("a", 1, 10), ("a", 2, 11), ("a", 5, 10), ("b", 8, 11)]
PASSES = [(second(0), second(10)), (second(20), second(30))]
ENDED = {0: [second(1), second(21)], 1: [second(2), second(9), second(29)]}
RECEIVED = [("a", b"1"), ("b", b"2"), ("a", b"1")]
CLEAN = Session(1, 0, 0, 0, ("application_name", "TimeZone"))
WORKED = {"began": second(0), "ended_at": second(10)}


def test_clean_histories_have_no_violation() -> None:
    assert fenced_terms_grow(WRITES) == []
    assert purges_take_what_they_may([("1", "initiated")], [], []) == []
    assert passes_cover_everything(PASSES, ENDED, 2) == []
    assert passes_cover_everything(PASSES, ENDED, 3, failed={2}) == []
    assert deletions_last([("tasks_lease", 1)], {("tasks_lease", 2)}) == []
    assert rows_have_their_jobs([1, 2], {2, 4}, {1: 1, 2: 1, 3: 1, 4: 1}) == []
    assert sessions_are_clean([CLEAN]) == []
    assert events_are_delivered({1: ["done"], 2: ["done"]}, RECEIVED, int) == []
    assert both_releases_worked([(second(1), "old"), (second(10), "new")], **WORKED) == []


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
        (rows_have_their_jobs, ([1, 3], set(), {1: 1})),
        (rows_have_their_jobs, ([1], set(), {1: 2})),
        (rows_have_their_jobs, ([], {2}, {})),
        (rows_have_their_jobs, ([], set(), {2: 1})),
        (sessions_are_clean, ([CLEAN, CLEAN._replace(prepared=1)],)),
        (sessions_are_clean, ([CLEAN._replace(channels=1)],)),
        (sessions_are_clean, ([CLEAN._replace(locks=1)],)),
        (sessions_are_clean, ([CLEAN._replace(settings=("statement_timeout",))],)),
        (events_are_delivered, ({1: ["done"], 2: ["done"]}, RECEIVED[:1], int)),
        (events_are_delivered, ({1: ["done"], 2: ["dead"]}, RECEIVED, int)),
        (events_are_delivered, ({1: ["done", "done"], 2: ["done"]}, RECEIVED, int)),
        (events_are_delivered, ({1: ["done"]}, RECEIVED, int)),
        (events_are_delivered, ({1: ["done"], 2: ["done"]}, [*RECEIVED, ("c", b"2")], int)),
        (events_are_delivered, ({1: ["done"], 2: ["done"]}, [*RECEIVED, ("a", b"2")], int)),
        (events_are_delivered, ({1: ["done"], 2: ["done"]}, [*RECEIVED, ("b", b" 2")], int)),
        (lambda ended: both_releases_worked(ended, **WORKED), ([(second(1), "old")],)),
        (lambda ended: both_releases_worked(ended, **WORKED), ([(second(1), "old"), (second(11), "new")],)),
    ],
)
def test_each_check_finds_what_is_planted_for_it(check: Any, planted: tuple[Any, ...]) -> None:
    assert check(*planted)
