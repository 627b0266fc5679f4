"""The argument of `exhausted=`: the job that is being buried, and the transaction that buries it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from trueup.backoff import Retry
from trueup.errors import InvalidArguments
from trueup.jobs.job import ClaimedJob, Draft

if TYPE_CHECKING:
    from trueup.jobs.arguments import Arguments

# A function that keeps failing is called this often, with backoff. Then the job is buried without it.
TRIES = Retry(max_attempts=10, first=timedelta(seconds=1), factor=2, cap=timedelta(minutes=5))
TIMEOUT = timedelta(seconds=30)  # of one call: it holds the job's row locked


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A job that is being buried, for the function given as `exhausted=`.

    `tx` is the transaction that buries it, as a psycopg connection (async for a coroutine function, sync for a plain one). What
    you write and enqueue through it is committed if and only if the job becomes a dead letter.
    """

    tx: Any
    job: ClaimedJob
    reason: str  # "out of attempts", what `GiveUp` said, "its worker died at the last attempt"
    error_type: str  # of the last attempt
    error: str
    _arguments: Arguments

    @property
    def arguments(self) -> dict[str, Any]:
        """The job's arguments by name, defaults included. Arguments that no longer fit the signature are returned as stored."""
        try:
            return self._arguments.defaults | self._arguments.by_name(self.job.args)
        except InvalidArguments:
            return dict(json.loads(self.job.args))  # not orjson, which rounds integers over 64 bits

    @property
    def idempotency_key(self) -> str:
        """The same as in the job's attempts."""
        return self.job.idempotency_key


Follow = Iterable[Draft] | None
"""What it returns: jobs (`other_job.call(…)`) to enqueue in the same transaction, or nothing."""

OnExhausted = Callable[[Exhausted], Awaitable[Follow]] | Callable[[Exhausted], Follow]


@dataclass(frozen=True, slots=True)
class Exhausting:
    """What is stored with a job without attempts left, until `exhausted=` has been called."""

    reason: str
    type: str
    message: str
    tries: int = 0  # calls of `exhausted=` that failed

    @classmethod
    def of(cls, job: ClaimedJob) -> Exhausting | None:
        if job.exhausting is None:
            return None
        stored = orjson.loads(job.exhausting)
        return cls(stored["reason"], stored["type"], stored["message"], stored["tries"])

    def to_json(self) -> str:
        return orjson.dumps(self).decode()
