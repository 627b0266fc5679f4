"""A claimed job as a value, for tests that need no database."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from trueup.jobs.job import ClaimedJob
from trueup.testing.clock import NOON


def claimed(**fields: Any) -> ClaimedJob:
    defaults = {
        "holder": UUID(int=1),
        "id": 7,
        "kind": "send",
        "queue": "default",
        "lane": "default",
        "key": "",
        "args": "{}",
        "attempt": 1,
        "max_attempts": 3,
        "crashes": 0,
        "term": 1,
        "run_at": NOON,
        "enqueued_at": NOON,
        "claimed_at": NOON,
        "rank": NOON,
    }
    return ClaimedJob(**{**defaults, **fields})
