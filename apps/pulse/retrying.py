"""Trying something again that failed, after 1, 2 and 4 seconds, unless trying again cannot help."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import psycopg

from trueup import LostClaim, LostLease, Retry

from .constants import BACKOFF_MULTIPLIER, BASE_DELAY_MS, MAX_DELAY_MS, MAX_RETRIES

T = TypeVar("T")

log = logging.getLogger("pulse")


class Permanent(Exception):
    """The same call would fail again until the configuration or the data is changed."""


RETRY = Retry(
    max_attempts=1 + MAX_RETRIES,
    first=timedelta(milliseconds=BASE_DELAY_MS),
    factor=BACKOFF_MULTIPLIER,
    cap=timedelta(milliseconds=MAX_DELAY_MS),
    retry_on=(Exception,),
    give_up_on=(
        Permanent,
        LostClaim,
        LostLease,
        psycopg.DataError,
        psycopg.IntegrityError,
        psycopg.ProgrammingError,
        psycopg.NotSupportedError,
    ),
)


async def retrying(
    context: str, call: Callable[[], Awaitable[T]], *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> T:
    """What the call returns: of four calls, the first that does. The last error is raised, a permanent one at once."""
    for attempt in range(1, RETRY.max_attempts):
        try:
            return await call()
        except Exception as error:
            if not RETRY.worth_retrying(error):
                raise
            delay = RETRY.delay(attempt)
            delay_ms = delay // timedelta(milliseconds=1)
            facts = {"context": context, "attempt": attempt, "delay_ms": delay_ms, "error": told(error)}
            log.warning("%s: Attempt %d failed, retrying in %dms", context, attempt, delay_ms, extra=facts)
            await sleep(delay.total_seconds())
    return await call()


def told(error: BaseException) -> str:
    """For logs and for the column of the last error: one line, storable, and not too long."""
    text = " ".join(str(error).replace("\x00", "").split())
    return f"{type(error).__name__}: {text}"[:500].encode("utf-8", "replace").decode()
