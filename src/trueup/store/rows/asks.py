"""The statements that settle claimed rows: one for each kind of move, with its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from trueup.errors import ConfigError
from trueup.jobs.job import Draft
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Change, Release, Remove, Rest, RetryAfter, SetAside, Written
from trueup.reconcile.outcome import Outcome, Stay, To
from trueup.store.db.load import Statements
from trueup.store.db.message import numbers
from trueup.store.db.texts import text_of
from trueup.store.fitted import RowStatements

Quiet = Written | Rest | RetryAfter | SetAside | Release  # moves that leave the user's row as it is
Ask = tuple[bytes, dict[str, Any]]
# The result of writing an outcome. After `contested` (another transaction has changed the row, which is still chosen), `undone`
# (a trigger kept the row as it was) and `busy` (another session has locked it) the row is still held.
Done = Literal["changed", "conflict", "contested", "undone", "busy"]


class Asks:
    """Makes these statements for a table as it was when `made` was composed."""

    def __init__(self, made: RowStatements, statements: Statements) -> None:
        self._made = made
        self._statements = statements

    def of(
        self, rows: Sequence[ClaimedRow], moves: Sequence[Any], *, touch: bool
    ) -> tuple[list[Ask], Mapping[str, Sequence[Draft]]]:
        """One statement for each kind of move and set of columns; before several, one that locks the rows' records in order."""
        changes: dict[tuple[str, ...], list[tuple[ClaimedRow, Change | RetryAfter]]] = {}
        removals: list[ClaimedRow] = []
        quiet: list[tuple[ClaimedRow, Quiet]] = []
        drafts: dict[str, Sequence[Draft]] = {}
        # By key, so that two statements over the same rows lock them in the same order.
        for row, move in sorted(zip(rows, moves, strict=True), key=lambda pair: pair[0].key):
            match move:
                case Change(outcome=outcome) | RetryAfter(outcome=To() | Stay() as outcome):
                    changes.setdefault(tuple(sorted(outcome.columns)), []).append((row, move))
                    drafts |= {row.key: outcome.then} if outcome.then else {}
                case Remove(outcome):
                    removals.append(row)
                    drafts |= {row.key: outcome.then} if outcome.then else {}
                case Written() | Rest() | RetryAfter() | SetAside() | Release():
                    quiet.append((row, move))
        asks = [(self._made.change(columns), self._changes(columns, group)) for columns, group in changes.items()]
        if removals:
            asks.append((self._made.once("remove"), {**keyed(removals), **self.seen(removals)}))
        if quiet:
            asks.append(self._quiet(quiet, touch=touch))
        if len(asks) > 1:
            asks.insert(0, (self._statements["rows/in_order"], {"keys": sorted(row.key for row in rows)}))
        return asks, drafts

    def _changes(
        self, columns: tuple[str, ...], group: Sequence[tuple[ClaimedRow, Change | RetryAfter]]
    ) -> dict[str, Any]:
        rows = [row for row, _ in group]
        outcomes = [move.outcome for _, move in group if move.outcome is not None]
        told = [_told(row, move) if isinstance(move, RetryAfter) else None for row, move in group]
        params = {
            **keyed(rows),
            **self.seen(rows),
            "state": [o.state if isinstance(o, To) else row.state for row, o in zip(rows, outcomes, strict=True)],
            "rest_for": [_rest_for(move) for _, move in group],
            "attempt": [each and each.attempt for each in told],
            "error": [each and each.error for each in told],
            "reason": [each and each.reason for each in told],
        }
        for n, name in enumerate(columns, 1):
            params[f"c{n}"] = [self._text(outcome, name) for outcome in outcomes]
        return params

    def texts(self, outcome: Outcome) -> list[str | None]:
        """The values that an outcome writes, as texts. Raises the error of a value that cannot be written."""
        state = [outcome.state] if isinstance(outcome, To) else []
        return [*state, *(self._text(outcome, name) for name in getattr(outcome, "columns", ()))]

    def _text(self, outcome: Any, name: str) -> str | None:
        column = self._made.found.columns.get(name)
        if column is None:
            raise ConfigError(f"table {self._made.found.spec} has no column {name!r} any more; its outcome sets it")
        return text_of(outcome.columns[name], column)

    def seen(self, rows: Sequence[ClaimedRow]) -> dict[str, Any]:
        working = self._made.composer.selection.claimed_as
        return {"seen": [row.seen for row in rows], "seen_state": [working or row.state for row in rows]}

    def _quiet(self, group: Sequence[tuple[ClaimedRow, Quiet]], *, touch: bool) -> Ask:
        rows = [row for row, _ in group]
        told = [_told(row, move) for row, move in group]
        params = {
            "state": [each.state for each in told],
            "delay": [each.delay for each in told],
            "attempt": [each.attempt for each in told],
            "error": [each.error for each in told],
            "reason": [each.reason for each in told],
            "proposed": [each.proposed for each in told],
            "ongoing": [each.ongoing for each in told],
        }
        if not (touch and self._made.composer.marks_rows):
            about = {"key": [row.key for row in rows], "term": numbers(row.term for row in rows)}
            return self._statements["rows/rest"], {**params, **about}
        was = {"was_state": [row.state for row in rows], "was_changed_at": [row.was_changed_at for row in rows]}
        return self._made.once("put_back"), {**keyed(rows), **self.seen(rows), **was, **params}


def keyed(rows: Sequence[ClaimedRow]) -> dict[str, Any]:
    """The parameters that name claims, and their rows."""
    texts = zip(*(row.key_texts for row in rows), strict=True)
    return {
        "key": [row.key for row in rows],
        "term": numbers(row.term for row in rows),
        **{f"k{n}": list(column) for n, column in enumerate(texts, 1)},
    }


@dataclass(frozen=True, slots=True)
class _Told:
    state: str
    delay: float = 0.0
    attempt: int | None = None  # None: unchanged
    error: str | None = None
    reason: str | None = None
    proposed: str | None = None
    ongoing: bool = True  # the next attempt has the same idempotency key


def _told(row: ClaimedRow, move: Quiet) -> _Told:
    match move:
        case Rest(delay, succeeded, proposed):
            attempt = 0 if succeeded else row.attempt - 1
            shown = None if proposed is None else orjson.dumps(proposed).decode()
            return _Told("resting", delay.total_seconds(), attempt, proposed=shown, ongoing=not succeeded)
        case RetryAfter(delay, failure, spend):
            attempt = row.attempt if spend else row.attempt - 1
            return _Told("resting", delay.total_seconds(), attempt, failure.to_json(row), failure.message)
        case SetAside(reason, failure):
            return _Told("quarantined", 0.0, row.attempt, failure.to_json(row), reason)
        case Written(rest_for=rest_for):
            return _Told("gone") if rest_for is None else _Told("resting", rest_for.total_seconds(), 0, ongoing=False)
        case Release(begun):
            if row.attempt <= 1 and not row.alone and not begun:
                return _Told("gone")
            return _Told("resting", 1e-6, row.attempt - 1)  # later than the sweep that releases it


def _rest_for(move: Change | RetryAfter) -> float | None:
    delay = move.delay if isinstance(move, RetryAfter) else move.rest_for
    return None if delay is None else delay.total_seconds()
