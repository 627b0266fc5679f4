from __future__ import annotations

from datetime import timedelta

from trueup.leases.trust import Trust


def test_a_renewal_that_comes_before_anybody_saw_the_deadline_pass_counts() -> None:
    trust = Trust(timedelta(seconds=10), sent_at=0)
    trust.renewed(sent_at=8)
    assert trust.left(now=12) > 0


def test_a_deadline_that_was_seen_to_pass_stays_passed() -> None:
    trust = Trust(timedelta(seconds=10), sent_at=0)
    assert trust.left(now=9) < 0
    trust.renewed(sent_at=9)
    assert trust.left(now=9) < 0
