from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any

from tests.jobs.claimed import claimed
from trueup.testing.clock import NOON


def test_lateness_is_from_due_to_claimed() -> None:
    assert claimed(claimed_at=NOON + timedelta(seconds=5)).lateness == timedelta(seconds=5)


def test_the_idempotency_key_is_the_same_for_every_attempt_and_claim() -> None:
    first, later = claimed(attempt=1, term=1), claimed(attempt=3, term=9, crashes=2)
    assert first.idempotency_key == later.idempotency_key == "send:7@20260601T120000.000000Z"


def test_the_idempotency_keys_of_two_jobs_differ_also_of_two_with_the_same_id() -> None:
    later = {"enqueued_at": NOON + timedelta(microseconds=1)}
    others: list[dict[str, Any]] = [{}, {"id": 8}, {"kind": "resend"}, later]
    assert len({claimed(**other).idempotency_key for other in others}) == len(others)


def test_the_idempotency_key_does_not_depend_on_the_time_zone_of_a_session() -> None:
    moved = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert claimed(enqueued_at=moved).idempotency_key == claimed().idempotency_key
