"""Is anything wrong? One list of checks, for the command line, the endpoints of a worker, pings, alerts and pages.

What is measured comes from the database (`store/health.py`, and the view `health` for those who only have SQL); what to make of
it is decided here, purely. A check is well while it measures no more than is allowed, and what is allowed can be set
(`check_limits`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from trueup.config import CHECKS
from trueup.errors import DatabaseUnavailable
from trueup.program import typed
from trueup.store.db.connect import NOT_ALLOWED, RETRYABLE, is_away, unavailable
from trueup.store.health import Health, Measured
from trueup.store.store import Store
from trueup.texts import describe

T = TypeVar("T")

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "database": "workers reconnect by themselves once the database accepts connections",
        "workers": "start one: trueup worker --app module:app; if one should be running, check its log",
        "ticks": "workers are alive but do not plan: look for `service failed` and `database lost` in their logs; see: trueup recovery",
        "schedules": "trueup schedules show NAME says why; one that is ahead of the clock: trueup schedules rewind",
        "kinds": "deploy a worker whose code declares the kind and serves its queue, or cancel the jobs: trueup jobs cancel",
        "stranded_jobs": "look for `job finish refused` with move=rescue in the logs of workers, and for locks on those rows: trueup doctor",
        "refused_jobs": "remove the cause (a trigger, a constraint, a missing privilege, a lock); workers retry by themselves; see: trueup jobs show ID",
        "sweeps": "correct what the error names, then: trueup reconcilers run NAME",
        "overdue_rows": "start more workers, or raise concurrency= or rate= of the reconciler; trueup reconcilers show NAME",
        "overdue_jobs": "start more workers, or raise the concurrency, limit= or rate= of the kind; trueup status",
        "breakers": "repair the service that the handler calls; the breaker closes by itself, or at once with: trueup reconcilers resume NAME",
        "quarantine": "trueup reconcilers quarantine list, then release or discard the rows",
        "dead_letters": "trueup dead list, then revive or discard the jobs",
    }
)

ANSWER_WITHIN = 45.0  # seconds; longer than the usual pool_timeout, after which the error says more
FOLLOWS = frozenset({"ticks", "overdue_rows", "overdue_jobs"})  # follow from a fleet without workers


def advice(check: str) -> str:
    """What to do when the check fails. A newer release's check has no text of its own here."""
    return typed(ADVICE.get(check, "see: trueup status"))


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, and what to do about it."""

    check: str
    severity: str  # "error" or "warning"
    problem: str
    advice: str
    value: float = 1.0
    allowed: float = 0.0


SILENT = Finding(
    "database",
    "error",
    f"the database has not answered within {ANSWER_WITHIN:g} s: it is overloaded, or another session has locked a table",
    "see who waits for whom: select pid, pg_blocking_pids(pid), query from pg_stat_activity where wait_event_type = 'Lock'",
)


@dataclass(frozen=True, slots=True)
class Report:
    """All checks at one moment. `measured` is empty when the database was unreachable."""

    findings: tuple[Finding, ...]
    measured: tuple[Measured, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings


def judge(measured: Iterable[Measured], limits: Mapping[str, float | None]) -> tuple[Finding, ...]:
    """The checks that exceed their limits; a limit of None switches a check off."""
    found, all_measured = [], list(measured)
    alone = any(each.name == "workers" and each.value > 0 for each in all_measured)
    for each in all_measured:
        allowed = limits.get(each.name, each.allowed)
        if allowed is not None and each.value > allowed:
            reason = "workers" if alone and each.name in FOLLOWS else each.name
            found.append(Finding(each.name, each.severity, each.detail, advice(reason), each.value, allowed))
    return tuple(found)


async def check(store: Store, limits: Mapping[str, float | None] | None = None) -> Report:
    """Run every check now. A database that is unreachable, silent or not migrated is a finding, not an error."""
    return await in_time(_checked(store, limits), Report((SILENT,)))


async def in_time(answer: Coroutine[Any, Any, T], otherwise: T) -> T:
    """The answer, or `otherwise` if it takes too long: who asks from outside must not wait behind a lock, perhaps for ever."""
    waiting = asyncio.timeout(ANSWER_WITHIN)
    try:
        async with waiting:
            return await answer
    except TimeoutError:
        if not waiting.expired():
            raise
        return otherwise


async def _checked(store: Store, limits: Mapping[str, float | None] | None) -> Report:
    health = Health(store.pool, store.statements)
    try:
        refusal = await health.refusal()
        if refusal is not None:
            return Report((Finding("migrations", "error", refusal.problem, refusal.advice),))
        measured = await health.measured()
    except DatabaseUnavailable as error:
        return away(error)
    except RETRYABLE as error:
        if not is_away(error):
            raise
        return away(unavailable(store.url, error))
    except NOT_ALLOWED as error:
        return Report((refused(error, store.statements.schema),))
    return Report(judge(measured, limits or {}), tuple(measured))


def away(error: DatabaseUnavailable) -> Report:
    """The report on an unreachable database."""
    return Report((Finding("database", "error", str(error), advice("database")),))


def refused(error: Exception, schema: str) -> Finding:
    """The report when the role may not read trueup's tables."""
    return Finding(
        "privileges",
        "error",
        f"the role lacks a privilege: {describe(error)}",
        f"grant it, or use another role in database_url; to read alone: grant usage on schema {schema} and select on all its tables",
    )


assert set(CHECKS) | {"database"} == set(ADVICE)
