"""Every statement that takes locks for which other sessions may wait, with what bounds that. Decision 0064 has the reasons.

A session waits for us only as long as our transaction holds a lock: milliseconds, unless a statement of ours waits for a lock itself
while it holds others. That wait is what is bounded.
"""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from trueup.store import history
from trueup.store.db.load import names, source
from trueup.store.rows.compose import pieces
from trueup.work import housekeeping
from trueup.work.jobs import services

MOST = timedelta(milliseconds=pieces.MAX_LOCK_WAIT)

# What a statement locks is one record, or what nobody else wants; so nobody waits for it longer than for the session that it waits for.
ONE_RECORD = """
    alerts/forget alerts/write actions/add declarations/declare declarations/forget declarations/look jobs/drop_run jobs/free_window
    jobs/name_window jobs/progress jobs/refuse jobs/replace jobs/take_window jobs/enqueue_one lanes/advance lanes/register leases/acquire leases/fence
    leases/mint leases/release leases/renew leases/touch pauses/pause pauses/resume rates/take reconcilers/failed reconcilers/forget
    reconcilers/put reconcilers/rest reconcilers/rest_key reconcilers/set_state reconcilers/swept reconcilers/work
    reconcilers/work_key scans/begin scans/declare scans/fail scans/finish scans/refused scans/save schedules/delete schedules/hold schedules/put
    schedules/rewind schedules/set_state schedules/accept workers/forget workers/hold workers/leave workers/register workers/renew
    rows/checkpoint rows/change_locked rows/remove_locked history/expire_rest
"""
# The records are a worker's own, or were skipped while locked; only KEY SHARE on its worker's row may be waited for, as the first lock.
OWN_FIRST = "jobs/claim lanes/claim lanes/turns rows/claim_fresh"
# As many as a person names, in the order of their ids.
NAMED_BY_PEOPLE = (
    "jobs/cancel jobs/discard jobs/hurry jobs/request_stop jobs/revive quarantine/discard quarantine/release"
)
# Waits for a transaction that stores a job with the same unique key. They are taken in order, in the caller's or our transaction.
UNIQUE_KEYS = "jobs/enqueue"
# A batch of outcomes: the one whose record is locked is written alone, later.
FINISHING = "jobs/bury jobs/complete jobs/defer jobs/drop jobs/release jobs/retry jobs/snooze"
PLANNING = "schedules/advance schedules/fire schedules/refuse schedules/stop_runs"
# Rows of users' tables: longer than `deadlock_timeout`.
ROWS = """
    rows/change rows/change_alone rows/delete rows/delete_across rows/drop rows/in_order rows/mark rows/move rows/move_across rows/put_back
    rows/refund rows/refused rows/remove rows/remove_alone rows/renew_both rows/rest
"""
TABLES = "history/create_day history/drop_day history/identify history/lock_rest"
# Advisory locks: tried without waiting, or under a name that only those take who wait for the same thing.
ADVISORY = """
    history/await_lock history/lock leases/advisory_held leases/advisory_lock leases/advisory_unlock migrations/lock schedules/lock
    workers/lock
"""
GROUPS = {
    name: set(text.split())
    for name, text in (
        ("one record", ONE_RECORD),
        ("own first", OWN_FIRST),
        ("named by people", NAMED_BY_PEOPLE),
        ("unique keys", UNIQUE_KEYS),
        ("finishing", FINISHING),
        ("planning", PLANNING),
        ("rows", ROWS),
        ("tables", TABLES),
        ("advisory", ADVISORY),
    )
}
BOUNDS = {
    "finishing": (services.FINISH_LOCK_TIMEOUT, timedelta(milliseconds=500)),
    "planning": (housekeeping.PLAN_LOCK_TIMEOUT, timedelta(milliseconds=250)),
    "rows": (MOST, timedelta(milliseconds=1_500)),
    "tables": (history.LOCK_WAIT, timedelta(milliseconds=50)),
}

LOCKING = re.compile(r"\bfor (?:no key )?(?:update|key share|share)(?: of \w+)?(?P<skips> skip locked| nowait)?")
WRITING = re.compile(r"(?<!for )(?<!do )(?<!key )\b(?:update|delete from)\s")
SHAPES = re.compile(r"\b(?:(?:create|drop|alter|lock) table|attach|detach|advisory)|advisory_")


def text_of(name: str) -> str:
    return re.sub(r"--.*", "", source(name)).lower()


def waits(name: str) -> bool:
    """Whether it may wait for a lock. One that skips what is locked, and writes what it has locked so, does not."""
    text = text_of(name)
    locks = list(LOCKING.finditer(text))
    if any(not found["skips"] for found in locks) or SHAPES.search(text) or "on conflict" in text:
        return True
    return WRITING.search(text) is not None and not locks


STATEMENTS = {name for name in names() if not name.startswith("testing/")}


def test_every_statement_that_may_wait_for_a_lock_has_its_bound() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(set(listed)), "listed twice"
    waiting = {name for name in STATEMENTS if waits(name)}
    assert waiting - set(listed) == set(), "say what bounds it, here and in decision 0064"
    assert set(listed) - waiting == set(), "no longer there, or it no longer waits"


@pytest.mark.parametrize("group", BOUNDS)
def test_the_bounds_are_as_documented(group: str) -> None:
    used, documented = BOUNDS[group]
    assert used == documented
