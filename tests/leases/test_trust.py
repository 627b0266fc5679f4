from __future__ import annotations

from datetime import timedelta

from trueup.leases.trust import MARGIN, Trust

LEASE = timedelta(seconds=100)
TRUSTED = 100 * (1 - MARGIN)


def test_trust_ends_before_the_lease_does_counted_from_before_it_was_asked_for() -> None:
    trust = Trust(LEASE, sent_at=1000)
    assert trust.left(now=1000) == TRUSTED < 100
    assert trust.left(now=1000 + TRUSTED) <= 0


def test_a_renewal_counts_from_when_it_was_sent_not_from_its_answer() -> None:
    trust = Trust(LEASE, sent_at=0)
    trust.renewed(sent_at=50)
    assert trust.left(now=60) == 40 + TRUSTED - 50


def test_a_renewal_that_is_answered_out_of_order_shortens_nothing() -> None:
    trust = Trust(LEASE, sent_at=0)
    trust.renewed(sent_at=50)
    trust.renewed(sent_at=20)
    assert trust.left(now=50) == TRUSTED


def test_trust_that_was_ended_is_gone_at_any_time() -> None:
    trust = Trust(LEASE, sent_at=0)
    trust.end()
    assert trust.left(now=-1e9) == float("-inf")
