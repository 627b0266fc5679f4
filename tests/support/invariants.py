"""What must hold whatever happened, checked from the recorded histories. Each check returns its violations as text.

The numbers are those of the project's list of invariants. Checks over `moves` take database time and the order in which
PostgreSQL recorded the changes of a row; checks over `journal` take what the processes said themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import psycopg

from tests.support.journal import OwnConnection, read_journals
from tests.support.recorder import LeaseChange, Move, read_leases, read_moves
from trueup.jobs.states import FINAL, MOVES

Violations = list[str]

LEGAL = {*MOVES.values(), (None, "queued")}
TRUST_TOLERANCE = 0.05  # seconds between the worker's look at its deadline and the journal's


@dataclass(frozen=True)
class History:
    """Everything the checks need to know about a run."""

    moves: Sequence[Move] = ()
    leases: Sequence[LeaseChange] = ()
    journal: Sequence[OwnConnection] = ()
    killed: frozenset[int] = frozenset()  # processes that had no chance to say how their runs ended
    effects: Mapping[int, int] = field(default_factory=dict)  # rows written through ctx.transaction(), per job
    transactional: frozenset[str] = frozenset()  # kinds that write exactly one such row
    outside: frozenset[str] = frozenset()  # kinds that have an effect outside the database
    limits: Mapping[str, int] = field(default_factory=dict)  # most running at once, per kind
    most_claimed: int | None = None  # at once, by one statement

    def by_job(self) -> dict[int, list[Move]]:
        jobs: dict[int, list[Move]] = defaultdict(list)
        for move in self.moves:
            jobs[move.job].append(move)
        return jobs

    def states(self) -> dict[int, str | None]:
        return {job: moves[-1].after for job, moves in self.by_job().items()}


def terms_increase(history: History) -> Violations:
    """I3: the terms of one job's claims grow strictly, and none is shared."""
    found = []
    for job, moves in history.by_job().items():
        claims = [move for move in moves if move.after == "running"]
        found += [
            f"I3: job {job} was claimed with term {later.term} after term {earlier.term}"
            for earlier, later in pairwise(claims)
            if later.term <= earlier.term
        ]
    return found


def claims_are_disjoint(history: History) -> Violations:
    """I4: one claim of a job ends before the next begins, and none is taken from its holder before the lease has passed."""
    found = []
    for job, moves in history.by_job().items():
        claimed: Move | None = None
        ended_at: datetime | None = None
        for move in moves:
            if move.after == "running":
                if claimed is not None:
                    found.append(f"I4: job {job} was claimed by {move.holder} while {claimed.holder} held it")
                if ended_at is not None and move.at < ended_at:
                    found.append(f"I4: job {job} was claimed at {move.at}, before its last claim ended at {ended_at}")
                claimed = move
            elif move.before == "running":
                claimed, ended_at = None, move.at
    return found + list(_early_rescues(history))


def _early_rescues(history: History) -> Iterator[str]:
    leases: dict[object, list[LeaseChange]] = defaultdict(list)
    for lease in history.leases:
        leases[lease.holder].append(lease)
    for move in history.moves:
        if move.rescued:
            known = [lease for lease in leases[move.holder] if lease.at <= move.at]
            if known and move.at < known[-1].lease_until:
                yield f"I4: job {move.job} was taken from {move.holder} at {move.at}, held until {known[-1].lease_until}"


def database_effects_happen_once(history: History) -> Violations:
    """I5: what was written together with "done" is there once for each done job, and for no other."""
    kinds = {move.job: move.kind for move in history.moves}
    found = []
    for job, state in history.states().items():
        if kinds[job] in history.transactional:
            wanted, written = int(state == "done"), history.effects.get(job, 0)
            if written != wanted:
                found.append(f"I5: job {job} is {state} and its effect was written {written} times")
    return found


def outside_effects_are_repeatable(history: History) -> Violations:
    """I6: a done job had its outside effect at least once, always with the same key and the same bytes."""
    kinds = {move.job: move.kind for move in history.moves}
    effects: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for line in history.journal:
        if "effect" in line:
            effects[line["job_id"]].add((line["key"], line["effect"]))
    found = [f"I6: job {job} had different effects: {sorted(seen)}" for job, seen in effects.items() if len(seen) > 1]
    keys = Counter(key for seen in effects.values() for key, _ in seen)
    found += [f"I6: several jobs used the key {key}" for key, count in keys.items() if count > 1]
    found += [
        f"I6: job {job} is done without its effect"
        for job, state in history.states().items()
        if state == "done" and kinds[job] in history.outside and job not in effects
    ]
    return found


def late_finishes_change_nothing(history: History) -> Violations:
    """I7: a finish that was refused is not in the database, and whoever ran a job that another took over has said so."""
    ended = {(move.job, move.term): move for move in history.moves if move.before == "running"}
    refused = [line for line in history.journal if line.get("event") == "job.claim_lost"]
    found = []
    for line in refused:
        move = ended.get((line["job_id"], line["term"]))
        if line["refused_by"] == "database" and move is not None and move.after in FINAL and not move.rescued:
            found.append(f"I7: job {move.job} term {move.term} was refused, and yet it went to {move.after}")
    counted = {(line["process"], line["job_id"], line["term"]) for line in refused}
    for line in history.journal:
        if line.get("event") == "job.started" and line["process"] not in history.killed:
            run = (line["job_id"], line["term"])
            move = ended.get(run)
            if (move is None or move.rescued) and (line["process"], *run) not in counted:
                found.append(f"I7: process {line['process']} ran job {run[0]} term {run[1]} and lost it without a word")
    return found


def everything_ends_in_time(history: History, *, fault_ended_at: datetime, within: timedelta) -> Violations:
    """I8: all jobs have ended within the bound after the last fault."""
    found = []
    for job, moves in history.by_job().items():
        last = moves[-1]
        if last.after not in FINAL:
            found.append(f"I8: job {job} is still {last.after}")
        elif last.at > fault_ended_at + within:
            late = (last.at - fault_ended_at).total_seconds()
            found.append(f"I8: job {job} ended {late:.1f} s after the last fault, bound {within.total_seconds():.1f} s")
    return found


def attempts_are_counted(history: History) -> Violations:
    """I9: each claim counts one attempt, never above the maximum; a job dies once, with the payload it was given."""
    found = []
    for job, moves in history.by_job().items():
        counted = 0
        deaths = 0
        for move in moves:
            if move.after == "running":
                if move.attempt != counted + 1:
                    found.append(f"I9: job {job} was claimed as attempt {move.attempt} with {counted} counted before")
                if move.attempt > move.max_attempts:
                    found.append(f"I9: job {job} had attempt {move.attempt} of {move.max_attempts}")
            elif move.before == "dead":
                deaths = 0
            deaths += move.after == "dead"
            counted = move.counted
        if deaths > 1:
            found.append(f"I9: job {job} died {deaths} times")
        if moves[-1].after == "dead" and moves[-1].args != moves[0].args:
            found.append(f"I9: the payload of dead job {job} is not what was enqueued")
    return found


def moves_are_legal(history: History) -> Violations:
    """I10: only the moves of the state machine, each from where the last one went."""
    found = []
    for job, moves in history.by_job().items():
        state: str | None = None
        for move in moves:
            if move.before != state:
                found.append(f"I10: job {job} was {state} and then moved from {move.before}")
            if (move.before, move.after) not in LEGAL:
                found.append(f"I10: job {job} moved from {move.before} to {move.after}")
            state = move.after
    return found


def limits_hold(history: History) -> Violations:
    """I11: one live job per unique key, and no more running jobs of a kind than its limit, at every instant."""
    found = []
    live: dict[tuple[str, str], int] = {}
    running: Counter[str] = Counter()
    for move in history.moves:
        if move.unique_key is not None:
            key = (move.kind, move.unique_key)
            other = live.get(key)
            if move.after in FINAL or move.after is None:
                live.pop(key, None)
            elif other not in (None, move.job):
                found.append(f"I11: jobs {other} and {move.job} of {move.kind} shared the key {move.unique_key!r}")
            else:
                live[key] = move.job
        running[move.kind] += (move.after == "running") - (move.before == "running")
        limit = history.limits.get(move.kind)
        if limit is not None and move.after == "running" and running[move.kind] > limit:
            found.append(f"I11: {running[move.kind]} jobs of {move.kind} ran at once, limit {limit}, at {move.at}")
    return found


def claims_are_bounded(history: History) -> Violations:
    """I13: no statement claimed more than its worker has room for."""
    if history.most_claimed is None:
        return []
    claims = Counter((move.tx, move.holder) for move in history.moves if move.after == "running")
    return [
        f"I13: {holder} claimed {count} jobs at once, room was for {history.most_claimed}"
        for (_, holder), count in claims.items()
        if count > history.most_claimed
    ]


def nothing_is_left_open(url: str) -> Violations:
    """I16: no session, and so no lock and no open transaction, of anybody but the caller."""
    with psycopg.connect(url, autocommit=True) as connection:
        sessions = connection.execute(
            "select pid, application_name, state, left(query, 80) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
        ).fetchall()
        locks = connection.execute(
            "select pid, mode, relation::regclass::text from pg_locks"
            " where database = (select oid from pg_database where datname = current_database()) and pid <> pg_backend_pid()"
        ).fetchall()
    found = [f"I16: session {pid} ({name}) is {state}: {query}" for pid, name, state, query in sessions]
    return found + [f"I16: session {pid} holds {mode} on {relation}" for pid, mode, relation in locks]


def nothing_is_lost(url: str, history: History, *, enqueued: Iterable[int]) -> Violations:
    """I17: every job that was enqueued is done, dead, cancelled or live; none is in two places, none came from nowhere."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select id, state from trueup.jobs union all select id, state from trueup.history"
        ).fetchall()
    places = Counter(job for job, _ in rows)
    states: dict[int, str] = dict(rows)
    expected = set(enqueued)
    found = [f"I17: job {job} was enqueued and is nowhere" for job in sorted(expected - places.keys())]
    found += [f"I17: job {job} is there and was never enqueued" for job in sorted(places.keys() - expected)]
    found += [f"I17: job {job} is in {count} places" for job, count in places.items() if count > 1]
    found += [
        f"I17: job {job} is {states.get(job)}, its history says {state}"
        for job, state in history.states().items()
        if states.get(job) != state
    ]
    return found


def nothing_starts_without_trust(history: History) -> Violations:
    """I18: no handler is entered after its process's own deadline."""
    return [
        f"I18: process {line['process']} started job {line['job_id']} {-line['trust_left']:.3f} s after its deadline"
        for line in history.journal
        if line.get("event") == "job.started" and line["trust_left"] < -TRUST_TOLERANCE
    ]


CHECKS: Mapping[str, Callable[[History], Violations]] = {
    "I3": terms_increase,
    "I4": claims_are_disjoint,
    "I5": database_effects_happen_once,
    "I6": outside_effects_are_repeatable,
    "I7": late_finishes_change_nothing,
    "I9": attempts_are_counted,
    "I10": moves_are_legal,
    "I11": limits_hold,
    "I13": claims_are_bounded,
    "I18": nothing_starts_without_trust,
}


def check(history: History) -> Violations:
    """Every check that needs the histories alone."""
    return [violation for each in CHECKS.values() for violation in each(history)]


def read_history(url: str, journals: Path | None = None, *, killed: Iterable[int] = ()) -> History:
    """The histories of a run, without what only the test knows (effects, limits)."""
    return History(
        moves=read_moves(url),
        leases=read_leases(url),
        journal=read_journals(journals) if journals else (),
        killed=frozenset(killed),
    )
