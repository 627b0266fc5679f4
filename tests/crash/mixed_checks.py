"""What must hold for leases, purges, scans and users' own transactions, whatever happened. Each check returns its violations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from tests.support.invariants import Violations


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
