"""The checker of reconciled rows: a clean history has no violation, and each invariant goes red on a violation planted for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support import row_invariants, row_recorder
from tests.support.journal import OwnConnection
from tests.support.row_invariants import RowHistory
from tests.support.row_recorder import Known, UserChange

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
ANN, BOB = UUID(int=1), UUID(int=2)


def second(n: float) -> datetime:
    return NOON + timedelta(seconds=n)


def known(seq: int, before: Known | None, after: str | None, **facts: Any) -> Known:
    """A change of row 7, from where `before` left it, at the second `seq`."""
    old = None if before is None or before.after is None else before
    given = {
        "old_holder": old and old.new_holder,
        "old_term": old and old.new_term,
        "old_attempt": old and old.new_attempt,
        "old_alone": old and False,
        "old_started": old and False,
        "old_due_at": old and old.new_due_at,
        "new_holder": None,
        "new_term": old and old.new_term,
        "new_attempt": old and old.new_attempt,
        "new_due_at": None,
        **facts,
    }
    if after is None:
        given |= {"new_term": None, "new_attempt": None}
    at = {"began": second(seq), "at": second(seq), "tx": str(seq)}
    return Known(seq=seq, reconciler="send", key="7", before=old and old.after, after=after, **{**at, **given})


def changed(after: str, tx: int) -> UserChange:
    return UserChange(tx, "tasks", "7", "pending", after, second(tx), second(tx), str(tx))


def ran(term: int, process: int) -> OwnConnection:
    return {"effect": "task 7", "job_id": 7, "term": term, "key": "send:7", "process": process}


def lost(term: int, process: int) -> OwnConnection:
    about = {"reconciler": "send", "key": "7", "refused_by": "database"}
    return {"event": "row.claim_lost", "term": term, "process": process, **about}


# Ann claims row 7 and renews, and is stopped past her lease; Bob takes it over, fails, claims it again and is done. Ann's
# outcome is refused.
CLAIMED = known(1, None, "held", new_holder=ANN, new_term=1, new_attempt=1, new_due_at=second(4))
RENEWED = known(3, CLAIMED, "held", new_holder=ANN, new_due_at=second(6))
TAKEN = known(7, RENEWED, "held", new_holder=BOB, new_term=2, new_due_at=second(10))
FAILED = known(8, TAKEN, "resting", new_due_at=second(9))
AGAIN = known(10, FAILED, "held", new_holder=BOB, new_term=3, new_attempt=2, new_due_at=second(13))
DONE = known(11, AGAIN, None)
QUARANTINED = known(11, AGAIN, "quarantined")

CLEAN = RowHistory(
    known=[CLAIMED, RENEWED, TAKEN, FAILED, AGAIN, DONE],
    users=[changed("done", 11)],
    journal=[ran(1, 10), ran(2, 20), ran(3, 20), lost(1, 10)],
    places={"send": "tasks"},
    effects={("send", "7"): 1},
    written=[("send", "7", 3)],
    max_attempts={"send": 2},
    batch={"send": 1},
)


def having(*changes: Known) -> RowHistory:
    return replace(CLEAN, known=changes)


PLANTED = {
    "I3 a term that did not grow": having(*CLEAN.known[:4], replace(AGAIN, new_term=2)),
    "I3 a term that began anew when nothing was known": having(*CLEAN.known, known(12, None, "held", new_term=1)),
    "I3 a term that two rows share": having(CLAIMED, replace(CLAIMED, key="8", seq=2)),
    "I4 a row taken over before its lease passed": having(CLAIMED, RENEWED, replace(TAKEN, began=second(5))),
    "I4 a claim that begins before the last one ended": having(
        *CLEAN.known, replace(known(12, None, "held", new_term=4), at=second(10))
    ),
    "I5 a row that was done twice": replace(
        CLEAN, users=[changed("done", 11), changed("done", 12)], effects={("send", "7"): 2}
    ),
    "I5 an effect written twice": replace(CLEAN, effects={("send", "7"): 2}),
    "I5 an effect that is missing": replace(CLEAN, effects={}),
    "I5 an effect of a row that is not done": replace(CLEAN, users=[]),
    "I5 an effect of a row that nobody claimed": replace(CLEAN, effects={**CLEAN.effects, ("send", "8"): 1}),
    "I7 a row changed without a claim": replace(CLEAN, users=[changed("done", 11), changed("failed", 12)]),
    "I7 a row changed after its lease had passed": replace(
        having(*CLEAN.known[:5], replace(DONE, began=second(14))), journal=[]
    ),
    "I7 an outcome of a claim that another had taken over": replace(CLEAN, written=[("send", "7", 1)]),
    "I7 a refused outcome that is in the database": replace(CLEAN, journal=[*CLEAN.journal, lost(3, 20)]),
    "I7 a lost run that nobody counted": replace(CLEAN, journal=[ran(1, 10), ran(2, 20), ran(3, 20)]),
    "I9 a claim that counted no attempt": having(*CLEAN.known[:4], replace(AGAIN, new_attempt=1)),
    "I9 a first attempt that is none": having(replace(CLAIMED, new_attempt=2)),
    "I9 an attempt counted for a row in company that no handler had begun": having(
        CLAIMED, RENEWED, replace(TAKEN, new_attempt=2)
    ),
    "I9 two attempts counted for a row that its holder had begun": having(
        CLAIMED, RENEWED, replace(TAKEN, old_started=True, new_attempt=3)
    ),
    "I9 a death alone of a row begun that was not counted": having(
        CLAIMED, RENEWED, replace(TAKEN, old_alone=True, old_started=True)
    ),
    "I9 a death alone that was not counted": having(CLAIMED, RENEWED, replace(TAKEN, old_alone=True)),
    "I9 an attempt above the maximum": replace(CLEAN, max_attempts={"send": 1}),
    "I10 a quarantine that a claim ended": having(
        *CLEAN.known[:5], QUARANTINED, known(12, QUARANTINED, "held", new_term=4)
    ),
    "I10 a move from where the row was not": having(CLAIMED, AGAIN),
    "I10 a row claimed before its rest was over": having(*CLEAN.known[:4], replace(AGAIN, began=second(8.5))),
    "I10 a lease renewed after it had passed": having(CLAIMED, replace(RENEWED, began=second(5))),
    "I10 a failure written after the lease had passed": having(*CLEAN.known[:3], replace(FAILED, began=second(11))),
    "I10 a rest forgotten before it was over": having(
        *CLEAN.known[:4], replace(known(9, FAILED, None), began=second(8.5))
    ),
    "I13 a claim of more than was asked for": having(CLAIMED, replace(CLAIMED, key="8", new_term=9)),
}


def test_a_clean_history_has_no_violation() -> None:
    assert row_invariants.check(CLEAN) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_each_planted_violation_is_found(planted: str) -> None:
    number = planted.split()[0]
    found = row_invariants.CHECKS[number](PLANTED[planted])
    assert found
    assert all(violation.startswith(f"{number}: ") for violation in found)


def test_every_check_has_a_planted_violation() -> None:
    assert {planted.split()[0] for planted in PLANTED} == row_invariants.CHECKS.keys()


def test_a_killed_process_need_not_have_counted_its_lost_rows() -> None:
    history = replace(CLEAN, journal=[ran(1, 10)], killed=frozenset({10}))
    assert row_invariants.late_outcomes_change_nothing(history) == []


@pytest.mark.parametrize(("by", "excused"), [(10, True), (20, False)], ids=["the one who lost it", "somebody else"])
def test_who_found_its_row_changed_by_the_user_has_said_so(by: int, excused: bool) -> None:
    conflict = {"event": "row.conflict", "reconciler": "send", "key": "7", "process": by}
    history = replace(CLEAN, journal=[ran(1, 10), conflict])
    assert (row_invariants.late_outcomes_change_nothing(history) == []) is excused


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        pytest.param(changed("pending", 5), True, id="during the lease"),
        pytest.param(replace(changed("pending", 6), began=second(6.5)), False, id="after the lease had passed"),
        pytest.param(changed("pending", 9), False, id="while the row rests"),
        pytest.param(changed("done", 5), False, id="with another state"),
    ],
)
def test_a_holder_may_take_its_marks_back_while_it_holds_the_row(change: UserChange, allowed: bool) -> None:
    history = replace(CLEAN, users=[change, *CLEAN.users])
    assert (row_invariants.late_outcomes_change_nothing(history) == []) is allowed


@pytest.mark.parametrize("attempt", [1, 2], ids=["its process died", "its process outlived the lease"])
def test_a_row_that_its_holder_had_begun_may_have_been_the_cause(attempt: int) -> None:
    taken = replace(TAKEN, old_started=True, new_attempt=attempt)
    assert row_invariants.attempts_are_counted(having(CLAIMED, RENEWED, taken)) == []


def test_a_row_released_from_quarantine_is_claimed_as_if_for_the_first_time() -> None:
    released = known(12, QUARANTINED, None)
    claimed = known(13, None, "held", new_holder=ANN, new_term=4, new_attempt=1, new_due_at=second(20))
    history = having(*CLEAN.known[:5], QUARANTINED, released, claimed)
    assert row_invariants.attempts_are_counted(history) + row_invariants.moves_are_legal(history) == []


def test_a_lease_that_passed_may_be_forgotten_when_the_row_has_moved_on() -> None:
    forgotten = replace(known(9, RENEWED, None), began=second(9))
    assert row_invariants.moves_are_legal(having(CLAIMED, RENEWED, forgotten)) == []


@pytest.mark.parametrize(
    ("changes", "within"), [(CLEAN.known[:5], timedelta(minutes=1)), (CLEAN.known, timedelta(seconds=3))]
)
def test_a_row_still_known_or_late_after_the_last_fault_is_found(changes: list[Known], within: timedelta) -> None:
    found = row_invariants.everything_ends_in_time(having(*changes), fault_ended_at=second(7), within=within)
    assert [violation[:4] for violation in found] == ["I8: "]


def test_rows_that_end_within_the_bound_are_in_time() -> None:
    found = row_invariants.everything_ends_in_time(CLEAN, fault_ended_at=second(7), within=timedelta(seconds=4))
    assert found == []


CLAIM = """
with touched as (update tasks set state = 'working' where id = 7)
insert into trueup.rows (reconciler, key, state, due_at, holder, term, attempt, claimed_at, changed_at)
values ('send', '7', 'held', now() + interval '1 min', gen_random_uuid(), 5, 1, now(), now())
"""
SET_ASIDE = "update trueup.rows set state = 'quarantined', holder = null, due_at = 'infinity'"


def test_what_is_committed_is_recorded_and_what_is_rolled_back_is_not(database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table tasks (id int primary key, state text)")
        row_recorder.install(database_url, ("tasks", "id", "state"))
        connection.execute("insert into tasks values (7, 'pending')")
        with connection.transaction(force_rollback=True):
            connection.execute("delete from tasks")
        connection.execute(CLAIM)
        connection.execute(SET_ASIDE)
        connection.execute("delete from trueup.rows")
        connection.execute("delete from tasks")
    history = row_invariants.read_history(database_url, tmp_path)
    assert [(each.before, each.after) for each in history.known] == [
        (None, "held"),
        ("held", "quarantined"),
        ("quarantined", None),
    ]
    claim, aside, _ = history.known
    assert (claim.claims, claim.new_term, claim.key) == (True, 5, "7")
    assert aside.in_time
    assert [(each.key, each.before, each.after) for each in history.users] == [
        ("7", "pending", "working"),
        ("7", "working", None),
    ]
    assert history.users[0].tx == claim.tx
    assert row_invariants.moves_are_legal(history) == []


# Where the row's own lock is the fence: it is written to while somebody holds it, and what is known is settled after that.
LOCKED = RowHistory(
    known=[replace(each, reconciler="row_lock") for each in (CLAIMED, known(5, CLAIMED, None))],
    users=[changed("done", 3)],
    journal=[{**ran(1, 10), "key": "row_lock:7"}],
    places={"row_lock": "tasks"},
    effects={("row_lock", "7"): 1},
    written=[("row_lock", "7", 1)],
    max_attempts={"row_lock": 3},
    batch={"row_lock": 10},
)


def test_a_row_written_under_its_lock_and_settled_later_is_no_violation() -> None:
    assert row_invariants.late_outcomes_change_nothing(LOCKED) == []


@pytest.mark.parametrize(
    "planted",
    [
        replace(LOCKED, users=[changed("done", 6)]),  # written when nobody held it any more
        replace(LOCKED, known=LOCKED.known[1:]),  # nobody ever claimed it
        replace(LOCKED, written=[("row_lock", "7", 2)]),  # under a term that nobody had
        replace(LOCKED, known=LOCKED.known[:1], written=[]),  # run, and then neither written nor told to be lost
    ],
    ids=["after its claim", "without a claim", "under another term", "lost without a word"],
)
def test_locks_excuse_nothing_else(planted: RowHistory) -> None:
    assert row_invariants.late_outcomes_change_nothing(planted) != []
