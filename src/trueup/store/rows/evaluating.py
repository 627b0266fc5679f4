"""Finds rows whose evaluation raises: `where=` divides by zero, a text is not a number, a value cannot be read.

A statement that walks over rows fails as a whole when one of them raises, and PostgreSQL does not say which one. Here the rows that
the statement would have looked at are listed without evaluating them. Then the server evaluates them in parts, down to single rows, in
one round trip. If one of them takes too long instead, they are evaluated in small parts, each within a second, and then row by row. A
row that raises, or takes longer than four seconds alone, gets a record, and guarded statements pass over rows with such a record.

If what raises is the key itself, it is of a record that no row can have: a column of the key was retyped since, or a label of its enum
was renamed. Such records are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from trueup.clock import elapsed
from trueup.jobs.failure import MAX_ERRORS, Failure
from trueup.store.db.connect import unanswered
from trueup.store.db.message import Query
from trueup.store.rows.apart import of_a_part, refusal
from trueup.store.rows.batch import DuePosition, Position

if TYPE_CHECKING:
    from trueup.store.rows.on_table import OnTable
    from trueup.store.rows.rows import Rows


PART = 32  # rows that are evaluated together, after more have taken too long
MAX_SLOW_SEARCH = 20.0  # seconds


@dataclass(frozen=True, slots=True)
class KnownRow:
    """A row, and its record."""

    key: str  # as trueup's `rows` has it
    whole_key: str | None
    state: str | None
    attempt: int  # failed attempts on record
    term: int | None  # of its record
    last_error: str | None  # the type of its last failure


@dataclass(frozen=True, slots=True)
class Candidate(KnownRow):
    """A row that a claim may look at."""

    claimable: bool  # it has no record, or is due again
    position: Position | None = None  # in the order of a sweep


@dataclass(slots=True)
class Evaluated:
    """The results by key. A key that is in none of them is gone, or was not tried in time."""

    free: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    refused: dict[str, Exception] = field(default_factory=dict)

    @property
    def any_works(self) -> bool:
        return bool(self.free or self.others)

    def __contains__(self, key: str) -> bool:
        return key in self.refused or key in self.free or key in self.others

    def include(self, more: Evaluated) -> None:
        self.free |= more.free
        self.others |= more.others
        self.refused |= more.refused


@dataclass(frozen=True, slots=True)
class Refusal:
    """A failed attempt of a row that was not claimed. The row rests for `delay`; None: it is quarantined."""

    row: KnownRow
    failure: Failure
    attempt: int  # how many attempts have failed by now
    delay: timedelta | None
    reason: str


async def candidates(rows: Rows, after: Position | None, cut_off: datetime | None) -> list[Candidate]:
    """A window of the rows that a guarded claim walks past, from this position on."""
    place = "start" if after is None else after.place
    params = {**rows.about_window(), "cut_off": cut_off, **rows.behind(after)}
    query = rows.made.once("candidates", place, guarded=True)
    found = []
    for row in await rows.claiming.fetch_steered(rows.steer, query, params):
        known, (without_value, order, *keys) = row[:8], row[8:]
        position = Position("without" if without_value else "with", order, tuple(keys))
        found.append(_candidate(known, position))
    return found


async def candidates_again(
    rows: OnTable[Any],
    after: DuePosition | None,
    cut_off: datetime | None,
    set_aside: tuple[datetime | None, str] | None = None,
) -> list[Candidate]:
    """Rows that are due again, from this position on; with `set_aside` also rows in quarantine, from that position on."""
    params = {
        **rows.about_window(),
        "cut_off": cut_off,
        "after_due": (after and after.due_at) or "-infinity",
        "after_key": after.key if after else "",
        "set_aside": set_aside is not None,
        "after": set_aside and set_aside[0],
        "after_set_aside": set_aside[1] if set_aside else "",
    }
    found = await rows.claiming.fetch_steered(rows.steer, rows.statements["rows/candidates_again"], params)
    return [_candidate(known) for known in found]


def _candidate(known: Sequence[Any], position: Position | None = None) -> Candidate:
    key, whole_key, row_state, attempt, term, state, due, last_error = known
    held = state == "held"  # its attempt has not failed yet
    claimable = state is None or (state in ("held", "resting") and bool(due))
    return Candidate(key, whole_key, row_state, (attempt or 0) - held, term, last_error, claimable, position)


class TooSlow(Exception):
    """A row takes too long to evaluate, alone in its statement."""


async def evaluate(searched: OnTable[Any], query: bytes, rows: Sequence[KnownRow]) -> Evaluated:
    """Evaluate these rows with a statement that returns whether each is free."""
    begun = elapsed()
    try:
        return await _evaluate(searched, query, rows)
    except errors.QueryCanceled:
        if elapsed() - begun < searched.search_for:
            raise
    until, made = elapsed() + MAX_SLOW_SEARCH, Evaluated()
    for first in range(0, len(rows), PART):
        if elapsed() < until:
            made.include(await _evaluate_in_time(searched, query, rows[first : first + PART], until))
    return made


async def _evaluate_in_time(searched: OnTable[Any], query: bytes, rows: Sequence[KnownRow], until: float) -> Evaluated:
    """As `_evaluate`. A row that takes too long alone is refused, and rows are left out when the time is up."""
    steer, made = searched.steer_search if len(rows) == 1 else searched.steer_part, Evaluated()
    params = _keys(searched, rows)
    try:
        for key, chosen in await searched.claiming.fetch_steered(steer, query, params):
            (made.free if chosen == "true" else made.others).add(key)
    except errors.QueryCanceled as error:
        if len(rows) == 1:
            made.refused[rows[0].key] = TooSlow(error.diag.message_primary)
        else:
            for row in rows:
                if elapsed() < until:
                    made.include(await _evaluate_in_time(searched, query, [row], until))
    except psycopg.Error as error:
        if unanswered(error):
            raise
        return await _evaluate(searched, query, rows)
    return made


async def drop_unreadable(searched: OnTable[Any], query: bytes, rows: Sequence[KnownRow]) -> set[str]:
    """Delete the records, among those of these rows, whose keys are no values of the key's columns. Returns their keys.

    `query` reads the keys as such values.
    """
    on_record = [row for row in rows if row.term is not None]
    errors_of = (await _evaluate(searched, query, on_record)).refused
    unreadable = [row for row in on_record if isinstance(errors_of.get(row.key), errors.DataError)]
    if not unreadable:
        return set()
    unreadable.sort(key=lambda row: row.key)  # two statements over the same rows lock them in the same order
    params = {
        **searched.about_window(),
        "key": [row.key for row in unreadable],
        "term": [row.term for row in unreadable],
    }
    return {key for (key,) in await searched.claiming.fetch(searched.statements["rows/drop"], params)}


def _keys(searched: OnTable[Any], rows: Sequence[KnownRow]) -> dict[str, Any]:
    return {
        **searched.about_window(),
        "key": [row.key for row in rows],
        "whole_key": [row.whole_key or row.key for row in rows],
    }


async def _evaluate(searched: OnTable[Any], query: bytes, rows: Sequence[KnownRow]) -> Evaluated:
    made = Evaluated()
    if not rows:
        return made
    keys = [row.key for row in rows]
    params = _keys(searched, rows)
    async with searched.claiming.conversation() as talk:
        text = talk.filled(Query(of_a_part(query), params)).decode(talk.encoding)
        values = {"statement": text, "count": len(rows), "seconds": searched.search_for, "changed": None}
        search = talk.filled(Query(searched.statements["rows/one_by_one"], values))
        answers = await talk.send(searched.steer_search, search, talk.commit)
    *found, _ = answers.rows(1)
    for key, chosen, nth, code, said, violated in found:
        if nth is not None:
            made.refused[keys[nth - 1]] = refusal(code, said, violated)
        else:
            (made.free if chosen == "true" else made.others).add(key)
    return made


async def record(searched: OnTable[Any], refusals: Sequence[Refusal]) -> set[str]:
    """Record these failed attempts. Returns the keys that were recorded; another worker was first for the others."""
    # Two statements over the same rows lock them in the same order.
    refusals = sorted(refusals, key=lambda each: each.row.key)
    params = {
        **searched.about_window(),
        "most_errors": MAX_ERRORS,
        "key": [each.row.key for each in refusals],
        "whole_key": [each.row.whole_key for each in refusals],
        "state": ["quarantined" if each.delay is None else "resting" for each in refusals],
        "delay": [0.0 if each.delay is None else each.delay.total_seconds() for each in refusals],
        "attempt": [each.attempt for each in refusals],
        "term": [each.row.term for each in refusals],
        "was_state": [each.row.state for each in refusals],
        "reason": [each.reason for each in refusals],
        "error": [each.failure.to_json() for each in refusals],
    }
    return {key for (key,) in await searched.claiming.fetch(searched.statements["rows/refused"], params)}
