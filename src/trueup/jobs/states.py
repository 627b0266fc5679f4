"""The life of a job: the states it can be in and the only moves between them.

The same moves are files in `store/sql/jobs/`, methods of `store.jobs`, events (`job.<past tense>`) and the diagram in
`docs/reference/states.md`; a test keeps the four in agreement.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    QUEUED = "queued"  # claimable once run_at has passed; there is no separate "scheduled"
    # Held by one worker, for one term, while that worker's lease lasts; a pending cancellation is a flag.
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"  # out of attempts, or given up; only a person moves it
    CANCELLED = "cancelled"


LIVE = frozenset({JobState.QUEUED, JobState.RUNNING})
FINAL = frozenset(JobState) - LIVE

MOVES: dict[str, tuple[JobState, JobState]] = {
    "claim": (JobState.QUEUED, JobState.RUNNING),
    "complete": (JobState.RUNNING, JobState.DONE),
    "retry": (JobState.RUNNING, JobState.QUEUED),
    "snooze": (JobState.RUNNING, JobState.QUEUED),
    "release": (JobState.RUNNING, JobState.QUEUED),
    "defer": (JobState.RUNNING, JobState.QUEUED),
    "rescue": (JobState.RUNNING, JobState.QUEUED),
    "bury": (JobState.RUNNING, JobState.DEAD),
    "drop": (JobState.RUNNING, JobState.CANCELLED),
    "cancel": (JobState.QUEUED, JobState.CANCELLED),
    "revive": (JobState.DEAD, JobState.QUEUED),
    "discard": (JobState.DEAD, JobState.CANCELLED),
}
