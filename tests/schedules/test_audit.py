from __future__ import annotations

from datetime import UTC, datetime, timedelta

from trueup.schedules import Cron, Every
from trueup.schedules.audit import Findings, LedgerRow, TickSpan, expected, reigns

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=1)
HOURLY = Cron("0 * * * *")


def hours(count: float) -> datetime:
    return NOON + timedelta(hours=count)


def fired(at: datetime, reason: str | None = None) -> LedgerRow:
    return LedgerRow(at, at, 1, "fired", reason, 1)


def skipped(first: datetime, last: datetime, count: int) -> LedgerRow:
    return LedgerRow(first, last, count, "skipped", "coalesced", None)


def compared(
    ticks: list[datetime], rows: list[LedgerRow], *, watermark: datetime = LATER, now: datetime = LATER
) -> Findings:
    findings = Findings("x")
    findings.compare(ticks, rows, NOON, watermark, now)
    return findings


def test_a_version_counts_after_it_was_made_up_to_the_next() -> None:
    held = reigns([(hours(0), HOURLY), (hours(2), None), (hours(4), Every("2h", anchor=NOON))], hours(8))
    assert list(expected(held, hours(-5), hours(8))) == [hours(1), hours(2), hours(6), hours(8)]
    assert list(expected(held, hours(1), hours(6))) == [hours(2), hours(6)]


def test_a_version_that_begins_after_the_end_expects_nothing() -> None:
    assert list(expected(reigns([(hours(0), HOURLY), (hours(9), HOURLY)], hours(1)), hours(0), hours(1))) == [hours(1)]


def test_a_tick_that_is_fired_or_skipped_is_accounted_for() -> None:
    found = compared(
        [hours(n) for n in (1, 2, 3, 4)], [fired(hours(1)), skipped(hours(2), hours(3), 2), fired(hours(4))]
    )
    assert found.clean
    assert (found.expected, found.fired, found.skipped) == (4, 2, 2)


def test_ticks_in_a_row_without_a_verdict_are_one_gap() -> None:
    found = compared([hours(n) for n in range(1, 7)], [fired(hours(1)), fired(hours(4))])
    assert found.gaps == [TickSpan(hours(2), hours(3), 2), TickSpan(hours(5), hours(6), 2)]
    assert not found.clean


def test_a_gap_that_goes_on_in_the_next_stretch_stays_one() -> None:
    findings = Findings("x")
    findings.compare([hours(1), hours(2)], [fired(hours(1))], NOON, hours(24), hours(24))
    findings.compare([hours(3), hours(4)], [fired(hours(4))], hours(2), hours(24), hours(24))
    assert findings.gaps == [TickSpan(hours(2), hours(3), 2)]


def test_ticks_beyond_the_watermark_are_overdue_and_only_after_a_while() -> None:
    ticks = [hours(1), hours(2), hours(3)]
    found = compared(ticks, [fired(hours(1))], watermark=hours(1), now=hours(3) + timedelta(seconds=60))
    assert (found.gaps, found.overdue) == ([], [TickSpan(hours(2), hours(2), 1)])


def test_a_range_that_began_before_reaches_in_and_is_not_counted() -> None:
    found = compared([hours(1), hours(2)], [skipped(hours(-3), hours(1), 5), fired(hours(2))])
    assert found.clean
    assert (found.fired, found.skipped) == (1, 0)


def test_a_backfilled_tick_within_a_skipped_range_does_not_end_it() -> None:
    rows = [skipped(hours(1), hours(4), 4), fired(hours(2), "backfill")]
    assert compared([hours(n) for n in (1, 2, 3, 4)], rows).clean


def test_a_row_that_no_version_asked_for_is_unexpected_unless_people_did() -> None:
    rows = [fired(hours(0.5)), fired(hours(0.6), "triggered"), fired(hours(0.7), "backfill"), fired(hours(1))]
    assert compared([hours(1)], rows).unexpected == [hours(0.5)]


def test_the_backfilled_first_tick_of_a_range_is_fired_and_the_others_skipped() -> None:
    row = LedgerRow(hours(1), hours(3), 3, "fired", "backfill (was coalesced)", 7)
    found = compared([hours(1), hours(2), hours(3)], [row])
    assert (found.fired, found.skipped, found.clean) == (1, 2, True)
