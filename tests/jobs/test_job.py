from __future__ import annotations

from datetime import timedelta

from tests.jobs.claimed import claimed
from trueup.testing.clock import NOON


def test_lateness_is_from_due_to_claimed() -> None:
    assert claimed(claimed_at=NOON + timedelta(seconds=5)).lateness == timedelta(seconds=5)


def test_the_idempotency_key_is_the_same_for_every_attempt_and_claim() -> None:
    first, later = claimed(attempt=1, term=1), claimed(attempt=3, term=9, crashes=2)
    assert first.idempotency_key == later.idempotency_key == "send:7"


def test_the_idempotency_keys_of_two_jobs_differ() -> None:
    keys = {claimed().idempotency_key, claimed(id=8).idempotency_key, claimed(kind="resend").idempotency_key}
    assert len(keys) == 3
