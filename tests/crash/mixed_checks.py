"""What must hold for leases, purges, scans, webhooks, producers, a pooler's sessions, two releases and users' own transactions,
whatever happened. Each check returns its violations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

from tests.support.invariants import Violations
from tests.support.pgbouncer import Session

# What PgBouncer sets itself, to what each client had when it connected.
TRACKED = frozenset(
    {"application_name", "client_encoding", "DateStyle", "IntervalStyle", "TimeZone", "standard_conforming_strings"}
)


def fenced_terms_grow(writes: Iterable[tuple[str, int, int]]) -> Violations:
    """I3 of leases: of writes behind a fence (name, term, process), in their order, none has an older term than one before it,
    and no two processes share a term."""
    newest: dict[str, int] = defaultdict(int)
    owners: dict[tuple[str, int], int] = {}
    found = []
    for name, term, process in writes:
        if term < newest[name]:
            found.append(f"I3: lease {name} let term {term} write after term {newest[name]}")
        newest[name] = max(newest[name], term)
        if owners.setdefault((name, term), process) != process:
            found.append(f"I3: lease {name} gave term {term} to process {owners[name, term]} and to process {process}")
    return found


def purges_take_what_they_may(
    deleted: Iterable[tuple[str, str | None]], left: Collection[str], kept: Iterable[str], purged: str = "initiated"
) -> Violations:
    """A purge deletes rows of its state only (deleted: key and state), all of them in the end, and none that was moved on before.

    `left` are the keys of purgeable rows that are still there, `kept` those of rows that a user moved on and that are gone.
    """
    found = [f"I10: the purge deleted {key} as {before}" for key, before in deleted if before != purged]
    found += [f"I8: {key} is to be purged and still there" for key in sorted(left)]
    return found + [f"I7: {key} was moved on by its user and purged all the same" for key in sorted(kept)]


def passes_cover_everything(
    passes: Iterable[tuple[datetime, datetime]],
    ended: Mapping[int, Sequence[datetime]],
    items: int,
    failed: Collection[int] = (),
) -> Violations:
    """A pass (began, completed) that says it is complete has handled every item to its end meanwhile, or said that it failed."""
    found = []
    for began, completed in passes:
        missed = [
            item
            for item in range(items)
            if item not in failed and not any(began <= each <= completed for each in ended.get(item, ()))
        ]
        if missed:
            found.append(f"I2: the pass of {began} has missed {len(missed)} items, {missed[0]} among them")
    return found


def deletions_last(deleted: Iterable[tuple[str, int]], there: Collection[tuple[str, int]]) -> Violations:
    """A row (table, key) that a user has deleted does not come back."""
    return [
        f"I7: {table} {key} was deleted by its user and is there" for table, key in deleted if (table, key) in there
    ]


def rows_have_their_jobs(acknowledged: Iterable[int], rows: Collection[int], jobs: Mapping[int, int]) -> Violations:
    """I12 and I17 of producers: what was acknowledged is there, nothing twice, and a row (even numbers) if and only if its job is."""
    found = [f"I17: the job of {n} was acknowledged and is nowhere" for n in acknowledged if n not in jobs]
    found += [f"I17: the job of {n} is there {count} times" for n, count in jobs.items() if count > 1]
    with_rows = {n for n in jobs if n % 2 == 0}
    found += [f"I12: row {n} is there without its job" for n in sorted(rows - with_rows)]
    return found + [f"I12: the job of {n} is there without its row" for n in sorted(with_rows - set(rows))]


def sessions_are_clean(sessions: Iterable[Session]) -> Violations:
    """I16 behind a pooler: clients leave nothing in a session that the next client would find."""
    found = []
    for each in sessions:
        if each.prepared:
            found.append(f"I16: session {each.pid} has {each.prepared} prepared statements")
        if each.channels:
            found.append(f"I16: session {each.pid} listens to {each.channels} channels")
        if each.locks:
            found.append(f"I16: session {each.pid} holds {each.locks} advisory locks")
        if changed := sorted(set(each.settings) - TRACKED):
            found.append(f"I16: session {each.pid} has settings of its own: {', '.join(changed)}")
    return found


def events_are_delivered(
    states: Mapping[int, Sequence[str]], received: Iterable[tuple[str, bytes]], event_of: Callable[[bytes], int]
) -> Violations:
    """I6 of webhooks: every event has one job, is done and was received, always with one key and the same bytes; and nothing else was.

    `states` are those of each event's jobs, `received` what the receiver has written down: idempotency key and body.
    """
    bodies: dict[int, set[tuple[str, bytes]]] = defaultdict(set)
    owners: dict[str, int] = {}
    found = []
    for key, body in received:
        event = event_of(body)
        bodies[event].add((key, body))
        if owners.setdefault(key, event) != event:
            found.append(f"I6: events {owners[key]} and {event} share the key {key}")
    found += [
        f"I6: event {event} came with {len(seen)} keys or bodies" for event, seen in bodies.items() if len(seen) > 1
    ]
    found += [f"I12: event {event} was received and never enqueued" for event in sorted(bodies.keys() - states.keys())]
    for event, each in states.items():
        if list(each) != ["done"]:
            found.append(f"I8: event {event} is {' and '.join(each)}")
        elif event not in bodies:
            found.append(f"I6: event {event} is done and was never received")
    return found


def both_releases_worked(ended: Iterable[tuple[datetime, str]], *, began: datetime, ended_at: datetime) -> Violations:
    """I8 of two releases: between the migration and the end of the old release, workers of both have ended jobs."""
    worked = {release for at, release in ended if began <= at <= ended_at}
    return [
        f"I8: no worker of the {each} release has ended a job after the migration"
        for each in ("old", "new")
        if each not in worked
    ]
