"""What must hold for reconciled rows whatever happened, checked from the recorded histories. Each check returns its violations.

The numbers are those of the project's list of invariants. Leases are judged by `began`, the database's time by which the
transaction itself judged them; the order of the changes of a row is the one in which PostgreSQL recorded them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from tests.support.invariants import Violations
from tests.support.journal import OwnConnection, read_journals
from tests.support.row_recorder import Known, UserChange, by_row, read_known, read_users

# From where to where, and whether the lease, or the rest, that is found there must have passed (None: either way).
LEGAL: Mapping[tuple[str | None, str | None], bool | None] = {
    (None, "held"): None,  # claimed
    ("resting", "held"): True,  # claimed again
    ("held", "held"): None,  # renewed before the lease passed, or taken over after it: told apart by the term
    ("held", None): None,  # done or given back before the lease passed, or forgotten after it
    ("held", "resting"): False,  # to be revisited, backing off, or given back
    ("held", "quarantined"): False,
    ("resting", "resting"): None,  # an attempt given back
    ("resting", None): True,  # forgotten: somebody else has moved the row on
    ("quarantined", None): None,  # released by a person, or forgotten
    ("quarantined", "resting"): None,  # released by a person
    ("quarantined", "discarded"): None,
    ("discarded", None): None,
    ("discarded", "resting"): None,
}

LOCKING = ("row_lock",)  # reconcilers whose rows are fenced by their own locks, not by what is known about them


@dataclass(frozen=True)
class RowHistory:
    """Everything the checks need to know about a run. `places` says which user's table a reconciler is about."""

    known: Sequence[Known] = ()
    users: Sequence[UserChange] = ()
    journal: Sequence[OwnConnection] = ()
    killed: frozenset[int] = frozenset()  # processes that had no chance to say how their runs ended
    places: Mapping[str, str] = field(default_factory=dict)
    done: frozenset[str] = frozenset({"done"})  # states that a row enters once
    effects: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (reconciler, key) -> how often
    written: Sequence[
        tuple[str, str, int]
    ] = ()  # (reconciler, key, term) of effects that say by which claim they were made
    max_attempts: Mapping[str, int] = field(default_factory=dict)
    batch: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def rows(self) -> dict[tuple[str, str], list[Known]]:
        return by_row(self.known)

    @cached_property
    def finished(self) -> Counter[tuple[str, str]]:
        """How often each (place, key) entered a state in which it is done."""
        return Counter(
            (each.place, each.key) for each in self.users if each.after in self.done and each.before not in self.done
        )


def terms_increase(history: RowHistory) -> Violations:
    """I3: the terms of a row's claims grow strictly, also when nothing was known about it in between; none is shared."""
    found = []
    for row, changes in history.rows.items():
        terms = [each.new_term or 0 for each in changes if each.claims]
        found += [
            f"I3: {row} was claimed with term {later} after {earlier}"
            for earlier, later in pairwise(terms)
            if later <= earlier
        ]
    shared = Counter(each.new_term for each in history.known if each.claims)
    return found + [f"I3: {count} claims have the term {term}" for term, count in shared.items() if count > 1]


def leases_are_disjoint(history: RowHistory) -> Violations:
    """I4: a row is taken from its holder only after the lease has passed, and is claimed only after the last claim ended."""
    found = []
    for row, changes in history.rows.items():
        ended_at: datetime | None = None
        for each in changes:
            if each.claims and each.in_time:
                found.append(f"I4: {row} was taken over at {each.began}, held until {each.old_due_at}")
            if each.claims and ended_at is not None and each.at < ended_at:
                found.append(f"I4: {row} was claimed at {each.at}, before its last claim ended at {ended_at}")
            if each.before == "held" and each.after != "held":
                ended_at = each.at
    return found


def effects_happen_once(history: RowHistory) -> Violations:
    """I5: a row is done once, and what was written together with that is there as often."""
    found = [f"I5: {row} was done {times} times" for row, times in history.finished.items() if times > 1]
    for reconciler, key in history.rows.keys() | history.effects.keys():
        if reconciler not in history.places:
            continue
        times = history.finished[history.places[reconciler], key]
        written = history.effects.get((reconciler, key), 0)
        if written != times:
            found.append(f"I5: {reconciler} {key} was done {times} times and its effect was written {written} times")
    return found


def _held_meanwhile(history: RowHistory, change: UserChange) -> bool:
    """For reconcilers with row locks: whether somebody held the row when this was written."""
    for reconciler in LOCKING:
        if history.places.get(reconciler) == change.place:
            before = [each for each in history.rows.get((reconciler, change.key), ()) if each.at <= change.at]
            return bool(before) and before[-1].after == "held"
    return False


def _only_unmarked(history: RowHistory, change: UserChange) -> bool:
    """Whether the holder of the row took back its own marks, after another session had changed the row under its lease.

    The record stays as it is in that transaction: the next one writes the attempt.
    """
    held = [
        before[-1]
        for (reconciler, key), changes in history.rows.items()
        if key == change.key and history.places.get(reconciler) == change.place
        if (before := [each for each in changes if each.at <= change.at])
    ]
    return change.before == change.after and any(
        each.after == "held" and each.new_due_at is not None and change.began < each.new_due_at for each in held
    )


def late_outcomes_change_nothing(history: RowHistory) -> Violations:
    """I7: nothing is written to a row but together with its claim, and while that lasts; who lost one has said so.

    Where the row's own lock is the fence, what is known about it is settled after the commit: then it is held meanwhile.
    """
    in_tx = {(history.places.get(each.reconciler), each.key, each.tx): each for each in history.known}
    found = []
    for change in history.users:
        if change.place in history.places.values():
            known = in_tx.get((change.place, change.key, change.tx))
            if known is None and (_held_meanwhile(history, change) or _only_unmarked(history, change)):
                continue
            if known is None:
                found.append(f"I7: {change.place} {change.key} was changed to {change.after} without a claim")
            elif known.before == "held" and not known.claims and not known.in_time:
                found.append(
                    f"I7: {change.place} {change.key} was changed to {change.after} after its lease had passed"
                )
    settled = {
        (each.reconciler, each.key, each.old_term)
        for each in history.known
        if each.settles or (each.reconciler in LOCKING and each.before == "held")
    }
    found += [
        f"I7: {reconciler} {key} was done under term {term}, which was not the one that ended"
        for reconciler, key, term in history.written
        if (reconciler, key, term) not in settled
    ]
    return found + _silent_losses(history)


def _silent_losses(history: RowHistory) -> Violations:
    lost = [line for line in history.journal if line.get("event") == "row.claim_lost"]
    ended = {(each.reconciler, each.key, each.old_term): each for each in history.known if each.before == "held"}
    found = []
    for line in lost:
        change = ended.get((line["reconciler"], line["key"], line["term"]))
        if line["refused_by"] == "database" and change is not None and change.settles:
            found.append(
                f"I7: {change.reconciler} {change.key} term {change.old_term} was refused, and yet it was settled"
            )
    counted = {(line["process"], line["reconciler"], line["key"], line["term"]) for line in lost}
    # One whose row was changed meanwhile by its user has said that instead; then only what is known about the row was lost.
    contested = {
        (line["process"], line["reconciler"], line["key"])
        for line in history.journal
        if line.get("event") == "row.conflict"
    }
    for line in history.journal:
        if "effect" in line and line["process"] not in history.killed:
            reconciler, key = line["key"].split(":")[:2]  # and the occasion
            change = ended.get((reconciler, key, line["term"]))
            ran = (line["process"], reconciler, key, line["term"])
            if reconciler in LOCKING and (reconciler, key, line["term"]) in history.written:
                continue  # done, under its lock: what was known about it is nobody's business then
            if (change is None or not change.settles) and ran not in counted and ran[:3] not in contested:
                found.append(f"I7: process {ran[0]} ran {reconciler} {key} term {ran[3]} and lost it without a word")
    return found


def everything_ends_in_time(history: RowHistory, *, fault_ended_at: datetime, within: timedelta) -> Violations:
    """I8: nothing is held or rests any more, and the last change came within the bound after the last fault."""
    found = []
    for row, changes in history.rows.items():
        last = changes[-1]
        if last.after in ("held", "resting"):
            found.append(f"I8: {row} is still {last.after}")
        elif last.at > fault_ended_at + within:
            late = (last.at - fault_ended_at).total_seconds()
            found.append(f"I8: {row} ended {late:.1f} s after the last fault, bound {within.total_seconds():.1f} s")
    return found


def attempts_are_counted(history: RowHistory) -> Violations:
    """I9: a claim counts one attempt, never above the maximum.

    A row that was left behind counts one more if it was alone, and none if no handler had begun it. If one had, it depends on
    whether the process outlived the lease, which is not on record.
    """
    found = []
    for (reconciler, key), changes in history.rows.items():
        most = history.max_attempts.get(reconciler)
        for each in changes:
            if not each.claims:
                continue
            in_company = each.before == "held" and not each.old_alone
            counted = (0, 1) if in_company and each.old_started else (0,) if in_company else (1,)
            expected = {(each.old_attempt or 0) + more for more in counted}
            if most is not None:
                expected = {min(attempt, most) for attempt in expected}
            if each.new_attempt not in expected:
                told = " or ".join(map(str, sorted(expected)))
                found.append(f"I9: {reconciler} {key} was claimed as attempt {each.new_attempt}, not as {told}")
    return found


def moves_are_legal(history: RowHistory) -> Violations:
    """I10: only the moves of the state machine, each from where the last one went, before or after the lease as it must be."""
    found = []
    for row, changes in history.rows.items():
        state: str | None = None
        for each in changes:
            move = (each.before, each.after)
            if each.before != state:
                found.append(f"I10: {row} was {state} and then moved from {each.before}")
            state = each.after
            if move not in LEGAL:
                found.append(f"I10: {row} moved from {each.before} to {each.after}")
                continue
            passed = each.old_due_at is not None and each.began >= each.old_due_at
            expected = each.claims if move == ("held", "held") else LEGAL[move]
            if expected is not None and passed != expected:
                found.append(
                    f"I10: {row} moved from {each.before} to {each.after} at {each.began}, due {each.old_due_at}"
                )
    return found


def claims_are_bounded(history: RowHistory) -> Violations:
    """I13: no statement claims more rows than were asked for."""
    claims = Counter((each.reconciler, each.tx) for each in history.known if each.claims)
    return [
        f"I13: {reconciler} claimed {count} rows at once, asked for {history.batch[reconciler]}"
        for (reconciler, _), count in claims.items()
        if count > history.batch.get(reconciler, count)
    ]


CHECKS: Mapping[str, Callable[[RowHistory], Violations]] = {
    "I3": terms_increase,
    "I4": leases_are_disjoint,
    "I5": effects_happen_once,
    "I7": late_outcomes_change_nothing,
    "I9": attempts_are_counted,
    "I10": moves_are_legal,
    "I13": claims_are_bounded,
}


def check(history: RowHistory) -> Violations:
    """Every check that needs the histories alone."""
    return [violation for each in CHECKS.values() for violation in each(history)]


def read_history(url: str, journals: Path, *, killed: Iterable[int] = ()) -> RowHistory:
    """The histories of a run, without what only the test knows (effects, places, limits)."""
    return RowHistory(read_known(url), read_users(url), read_journals(journals), frozenset(killed))
