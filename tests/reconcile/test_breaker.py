from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.reconcile.test_decide import row as claimed
from trueup.reconcile.breaker import MAX_PAUSE, MAX_SUSPECTS, Breaker
from trueup.reconcile.claimed import ClaimedRow

HALF_A_MINUTE = timedelta(seconds=30)


def breaker(pause_after: int | None = 3) -> Breaker:
    return Breaker(pause_after, HALF_A_MINUTE)


def test_it_opens_at_so_many_failures_of_one_kind_in_a_row() -> None:
    b = breaker()
    assert [b.failed(key, "ConnectionError") for key in "abc"] == [False, False, True]


def test_one_row_alone_opens_nothing_however_often_it_fails() -> None:
    b = breaker()
    assert not any(b.failed("a", "X") for _ in range(10))
    assert b.failed("b", "X"), "two different rows fail: it is not their own fault"


def test_another_kind_begins_a_streak_of_its_own() -> None:
    b = breaker()
    assert [b.failed(*each) for each in (("a", "X"), ("b", "X"), ("c", "Y"), ("d", "Y"))] == [False] * 4
    assert b.streak == 2
    assert b.failed("e", "Y")


def test_with_any_kind_different_rows_that_fail_or_are_refused_count_together() -> None:
    b = Breaker(3, HALF_A_MINUTE, any_kind=True)
    assert [b.failed("a", "X"), b.refused("b"), b.refused("b"), b.refused("a"), b.failed("c", "Y")] == [False] * 4 + [
        True
    ]
    b = Breaker(3, HALF_A_MINUTE, any_kind=True)
    assert [b.refused("a"), b.refused("b"), b.worked("c"), b.refused("d"), b.refused("e")] == [False] * 5
    assert b.refused("f")
    b.open()
    assert b.refused("g")


def test_refusals_count_for_nothing_otherwise() -> None:
    b = breaker()
    assert not any(b.refused(str(n)) for n in range(10))
    b.open()
    assert not b.refused("x")


def test_a_row_that_works_ends_a_streak_but_no_pause() -> None:
    b = breaker()
    b.failed("a", "X")
    b.failed("b", "X")
    assert not b.worked("c")
    assert b.streak == 0
    assert not b.failed("d", "X")


def test_while_probing_each_failure_opens_it_again_and_one_success_ends_that() -> None:
    b = breaker()
    b.open()
    assert b.failed("a", "X")
    assert b.failed("b", "Y")
    assert b.worked("c")
    assert not b.probing
    assert not b.failed("d", "X")


def test_without_a_limit_it_never_opens() -> None:
    b = breaker(None)
    assert not any(b.failed(str(n), "X") for n in range(10_000))
    assert not b.counts("a")


def test_rows_that_failed_before_others_worked_are_suspect_until_they_work() -> None:
    b = breaker()
    for key in "abc":
        b.failed(key, "X")
    b.open()
    b.failed("d", "X")
    assert all(b.counts(key) for key in "abcde")
    assert b.worked("e")
    assert [b.counts(key) for key in "abcde"] == [False, False, False, False, True]
    b.worked("a")
    assert b.counts("a")


def test_a_streak_that_ended_without_a_pause_makes_nobody_suspect() -> None:
    b = breaker()
    b.failed("a", "X")
    b.failed("b", "X")
    b.worked("c")
    assert b.counts("a")
    assert b.counts("b")


def test_what_another_process_found_out_counts_as_well() -> None:
    b = breaker()
    for key in "abc":
        b.failed(key, "X")
    b.open()
    assert b.close()
    assert not b.probing
    assert not b.counts("a")
    assert not b.close()


def test_suspects_are_not_kept_without_end() -> None:
    b = breaker(1)
    b.open()
    for n in range(MAX_SUSPECTS + 5):
        b.failed(str(n), "X")
    b.worked("good")
    assert b.counts("4")
    assert not b.counts("5")


def test_pauses_double_up_to_a_limit() -> None:
    b = breaker()
    assert [b.pause(n).total_seconds() for n in (0, 1, 2, 3, 4, 5, 1_000)] == [30, 60, 120, 240, 480, 600, 600]


def test_a_pause_that_is_longer_than_the_limit_stays_as_it_is() -> None:
    for long in (MAX_PAUSE * 2, timedelta(days=100_000_000)):
        assert Breaker(1, long).pause(50) == long


def row(key: str) -> ClaimedRow:
    return replace(claimed(), key=key)


def test_refused_outcomes_in_a_row_open_it_whatever_handlers_return_meanwhile() -> None:
    b = breaker()
    assert not b.unwritten(row("a"), "X")
    b.returned()
    assert not any(b.unwritten(row(key), "X") for key in "aab")
    b.returned()
    assert b.unwritten(row("c"), "X")
    assert [spent.key for spent in b.open()] == ["a", "b"]
    assert b.unwritten(row("d"), "X"), "each failure of a probe opens it again"


def test_a_written_outcome_or_another_reason_ends_a_streak_of_refusals() -> None:
    b = breaker()
    b.unwritten(row("a"), "X")
    b.unwritten(row("b"), "X")
    assert not b.written("c")
    assert not any(b.unwritten(row(key), "X") for key in "de")
    assert not any(b.unwritten(row(key), "Y") for key in "fg")
    assert Breaker(2, HALF_A_MINUTE, any_kind=True).unwritten(row("a"), "X") is False


def test_refusals_for_any_reason_count_together_if_that_is_asked_for() -> None:
    b = Breaker(3, HALF_A_MINUTE, any_kind=True)
    assert [b.unwritten(row(key), key) for key in "abc"] == [False, False, True]


def test_a_pause_ends_when_an_outcome_is_written_and_rows_of_the_streak_are_suspects() -> None:
    b = breaker()
    for key in "abc":
        b.unwritten(row(key), "X")
    b.open()
    b.returned()
    assert b.probing
    assert b.written("d")
    assert not b.probing
    assert [b.counts(key) for key in "abcd"] == [False, False, False, True]


def test_a_row_that_is_refused_beside_others_does_not_count_until_it_is_written() -> None:
    b = breaker()
    b.suspect("a")
    assert not b.counts("a")
    b.written("a")
    assert b.counts("a")
