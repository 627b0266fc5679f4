"""The checks of the failover runs: a clean failover has no violation, and each check goes red on a violation planted for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.crash.test_invariants import move
from tests.ha import checks
from tests.ha.checks import ACKNOWLEDGED, UNCONFIRMED, UNKNOWN, Failover, Write
from tests.support import report
from tests.support.report import HELD, VIOLATED, VOID, Part
from tests.support.tick_invariants import Entry, ticks_fire_once

FORK = 1000
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def write(n: int, outcome: str = ACKNOWLEDGED, *, how: str = "plain", after: int | None = 500) -> Write:
    return Write(n, how, outcome, float(n), n + 0.5, after)


def held(term: int, process: int) -> dict[str, Any]:
    return {"held": "leader", "term": term, "process": process}


def started(job: int, term: int, process: int) -> dict[str, Any]:
    return {"event": "job.started", "job_id": job, "term": term, "process": process}


def completed(job: int, process: int) -> dict[str, Any]:
    return {"event": "job.completed", "job_id": job, "process": process}


# Four commits: one is acknowledged, one is the client's own, of one nothing is known, and of one the wait was cancelled.
CLEAN = Failover(
    writes=[write(1), write(2, how="outbox"), write(3, UNKNOWN), write(4, UNCONFIRMED, after=1500)],
    orders=frozenset({2}),
    jobs={1: 1, 2: 1},
    journal=[held(1, 10), started(1, 1, 10), completed(1, 10), held(2, 11), started(2, 1, 11), completed(2, 11)],
    moves=[move(1, None, "queued"), move(2, "queued", "running", job=1, term=1)],
    done=frozenset({(1, 1), (2, 1)}),
    fork=FORK,
)
ASYNCHRONOUS = replace(CLEAN, exact=False)

PLANTED = {
    "F1 acknowledged": [
        replace(CLEAN, jobs={2: 1}),  # no promise excuses it, wherever it was in the log
        replace(CLEAN, jobs={2: 1}, writes=[write(1, after=1500), write(2, how="outbox")]),
        replace(ASYNCHRONOUS, jobs={2: 1}),  # before the fork: it was replicated, and is lost all the same
        replace(ASYNCHRONOUS, jobs={2: 1}, fork=None, writes=[write(1, after=1500)], orders=frozenset()),
    ],
    "F2 finishes": [replace(CLEAN, done=frozenset({(1, 1)})), replace(CLEAN, done=frozenset({(1, 1), (2, 2)}))],
    "F3 outbox": [
        replace(CLEAN, orders=frozenset()),
        replace(CLEAN, jobs={1: 1}, writes=[write(1), write(2, UNKNOWN, how="outbox")]),
        replace(CLEAN, jobs={1: 2, 2: 1}),
    ],
    "F4 tokens": [
        replace(CLEAN, journal=[held(2, 10), held(1, 11)]),
        replace(CLEAN, journal=[held(2, 10), held(2, 11)]),
        replace(CLEAN, journal=[held(1, 10), held(2, 11), held(1, 12)]),
    ],
    "F5 terms": [
        replace(CLEAN, journal=[started(1, 1, 10), started(1, 1, 11)]),
        replace(CLEAN, journal=[started(1, 2, 10)]),  # forgotten, and the new primary has only got to term 1
    ],
    "F6 live": [replace(CLEAN, live=[(7, "transfer", "running")])],
}


def test_a_clean_failover_has_no_violation() -> None:
    for failover in (CLEAN, ASYNCHRONOUS):
        assert [found for check in checks.CHECKS.values() for found in check(failover)] == []
    assert checks.facts(CLEAN).keys() == checks.CHECKS.keys()


@pytest.mark.parametrize("name", checks.CHECKS)
def test_each_check_finds_what_is_planted_for_it_and_no_other_check_does(name: str) -> None:
    for planted in PLANTED[name]:
        found = {each for each, check in checks.CHECKS.items() if check(planted)}
        assert name in found
        assert found <= {name, "F3 outbox"} or name == "F5 terms"


def test_commits_behind_the_fork_may_be_lost_asynchronously_and_are_counted() -> None:
    lost = replace(
        ASYNCHRONOUS, jobs={2: 1}, writes=[write(1, after=1500), write(5, after=None), write(2, how="outbox")]
    )
    assert checks.acknowledged_is_there(lost) == []
    assert [each.n for each in lost.lost()] == [1, 5]


def ticks(*seconds: tuple[int, int, str]) -> list[Entry]:
    second = timedelta(seconds=1)
    return [(NOON + a * second, NOON + b * second, b - a + 1, outcome) for a, b, outcome in seconds]


def runs(ledger: list[Entry]) -> Counter[datetime]:
    return Counter(first for first, _, _, outcome in ledger if outcome == "fired")


WHOLE = ticks((0, 0, "fired"), (1, 4, "skipped"), (5, 5, "fired"))


def test_ticks_that_fire_once_without_a_gap_are_no_violation() -> None:
    assert ticks_fire_once(WHOLE, runs(WHOLE)) == []


@pytest.mark.parametrize(
    ("ledger", "ran"),
    [
        (WHOLE[::2], runs(WHOLE)),
        ([*WHOLE, WHOLE[2]], runs(WHOLE)),
        ([(*WHOLE[1][:2], 3, "skipped"), WHOLE[0], WHOLE[2]], runs(WHOLE)),
        (WHOLE, runs(WHOLE[:2])),
        (WHOLE, runs([*WHOLE, WHOLE[0]])),
    ],
    ids=["a gap", "fired twice", "a wrong count", "no run", "two runs"],
)
def test_a_wrong_ledger_is_found(ledger: list[Entry], ran: Counter[datetime]) -> None:
    assert ticks_fire_once(ledger, ran)


def part(*, violations: int = 0, void: str = "", judged: bool = True) -> Part:
    made = Part("kill", "kill", violations=["V"] * violations, void=void)
    if judged:
        made.judge()
    return made


@pytest.mark.parametrize(
    ("parts", "verdict", "status"),
    [
        ([part(), part()], HELD, 0),
        ([part(), part(void="it did not land")], VOID, 2),
        ([part(), part(judged=False)], VOID, 2),
        ([part(void="it did not land"), part(violations=1)], VIOLATED, 1),
        ([part(violations=1, void="it did not land either")], VIOLATED, 1),
        ([], VOID, 2),
    ],
)
def test_a_violation_outweighs_a_void_part_and_a_part_that_never_ran_is_void(
    parts: list[Part], verdict: str, status: int
) -> None:
    assert report.verdict(parts) == verdict
    assert report.EXIT[verdict] == status
    assert report.document("make chaos-ha", parts)["verdict"] == verdict
    said = report.readable("Title", "make chaos-ha", parts)
    assert ("void" in said) == any(each.void for each in parts)
