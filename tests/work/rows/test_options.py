"""What a sweep by hand may do: a limit, a force past pauses, a shadow. Decided without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.reconcile.test_decide import reconciler
from trueup.store.rows.reconcilers import Gate
from trueup.work.rows.options import NO_INTERVAL, SweepOptions, in_shadow

CLOSED = Gate(paused=True, rests_for=60.0, pauses=3, swept_ago=None, now=datetime(2026, 11, 16, tzinfo=UTC))


def test_a_limit_is_spent_by_what_was_claimed() -> None:
    options = SweepOptions(limit=5)
    assert options.at_most(3) == 3
    options.spend(3)
    assert (options.at_most(3), options.cut_short) == (2, False)
    options.spend(4)  # a batch that was claimed at the same time
    assert (options.at_most(3), options.cut_short) == (0, True)


def test_without_a_limit_only_an_end_stops_claims() -> None:
    options = SweepOptions()
    options.spend(1_000_000)
    assert (options.at_most(10), options.cut_short) == (10, False)
    options.ended = True
    assert (options.at_most(10), options.cut_short) == (0, True)


def test_a_force_opens_the_gate_and_leaves_the_breaker_probing() -> None:
    assert SweepOptions().opened(CLOSED) == CLOSED
    opened = SweepOptions(force=True).opened(CLOSED)
    assert (opened.closed, opened.pauses) == (False, 3)


def test_a_shadow_knows_no_breaker() -> None:
    shadow = SweepOptions(shadow=True)
    assert (shadow.opened(CLOSED).closed, shadow.opened(CLOSED).pauses) == (True, 0)


def test_a_live_reconciler_in_shadow_writes_nothing_and_puts_nothing_off() -> None:
    live = reconciler(pause_after=5)
    shadow = SweepOptions(shadow=True).of(live)
    assert (shadow.mode, shadow.revisit, shadow.every, shadow.pause_after) == ("shadow", timedelta(), NO_INTERVAL, None)
    assert SweepOptions().of(live) is live
    assert in_shadow(shadow) is shadow
