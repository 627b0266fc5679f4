"""Settles a batch of which the database refuses some rows: it finds these rows and writes all others, in one transaction.

PostgreSQL refuses a statement over many rows as a whole, even if only one row is the reason. Here the server tries parts of the
statement, down to single rows, each in a subtransaction of its own. So one round trip finds every culprit of a batch and writes all
other rows. Deferred constraints are checked row by row. A value that cannot even be sent is found before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from psycopg import errors
from psycopg.pq import DiagnosticField

from trueup.jobs.job import Draft
from trueup.reconcile.claimed import ClaimedRow
from trueup.store.db.message import Conversation, Part, Query
from trueup.store.rows.asks import Done
from trueup.store.rows.tables import signed

if TYPE_CHECKING:
    from trueup.store.rows.rows import Rows

IMMEDIATE = b"set constraints all immediate"
MAX_SEARCH = 1.0  # seconds; rows that are not tried by then go with the next statement
_ARRAY = re.compile(rb"%\(\w+\)s::\w+\[\]")


def search_time(timeout: timedelta) -> float:
    """Seconds for a search for refused rows: less than a statement may take, so that one that took longer waited for something."""
    return min(MAX_SEARCH, timeout.total_seconds() / 4)


@dataclass(slots=True)
class Apart:
    """The results by key. A key that is in none of them was lost."""

    done: dict[str, Done] = field(default_factory=dict)
    refused: dict[str, Exception] = field(default_factory=dict)
    untried: set[str] = field(default_factory=set)
    sign: int | None = None  # the table's fingerprint at the end; if it has changed, no row is to blame


async def settle_apart(
    rows: Rows, holder: UUID, claimed: Sequence[ClaimedRow], moves: Sequence[Any], *, touch: bool
) -> Apart:
    """`Rows.settle`, but rows that are refused do not affect the others. Raises an error that is not about a row."""
    apart = Apart()
    async with rows.settling.conversation() as talk:
        pairs = list(zip(claimed, moves, strict=True))
        try:
            asks = _asks(rows, talk, holder, touch, pairs)
        except Exception:
            asks = _asks(rows, talk, holder, touch, _sendable(rows, talk, pairs, apart))
        end = [] if asks.drafts else [talk.commit]
        sign = Query(rows.statements["tables/sign"], signed(rows.found.spec))
        *answers, ((apart.sign,),) = await talk.each_afresh(rows.steer_together, [*asks.parts, sign], end, IMMEDIATE)
        for keys, answer in zip(asks.keys, answers, strict=True):
            _read(apart, keys, answer)
        if asks.drafts:
            await rows.follow(asks.drafts, apart.done, talk)
    return apart


@dataclass(slots=True)
class _Asks:
    parts: list[Part]
    keys: list[list[str] | None]  # the keys of each statement's rows; None: it is not divided
    drafts: Mapping[str, Sequence[Draft]]


def _asks(rows: Rows, talk: Conversation, holder: UUID, touch: bool, pairs: Sequence[tuple[ClaimedRow, Any]]) -> _Asks:
    """The statements for these rows. Raises the error of a value that cannot be sent."""
    asks, drafts = rows.asks.of([row for row, _ in pairs], [move for _, move in pairs], touch=touch)
    made = _Asks([], [], drafts)
    only_ours = rows.statements["rows/rest"], rows.statements["rows/in_order"]
    for query, params in asks:
        params |= rows.about(holder)
        if query in only_ours:  # they touch no user's table, so no row can be refused
            made.parts.append(talk.filled(Query(query, params)))
            made.keys.append(None)
            continue
        text = talk.filled(Query(of_a_part(query), params)).decode(talk.encoding)
        values = {
            "statement": text,
            "count": len(params["key"]),
            "seconds": rows.search_for,
            "changed": rows.found.counted,
        }
        made.parts.append(talk.filled(Query(rows.statements["rows/one_by_one"], values)))
        made.keys.append(params["key"])
    return made


@cache
def of_a_part(query: bytes) -> bytes:
    """The statement for only the rows $1 to $2 of its parameters."""
    return _ARRAY.sub(rb"(\g<0>)[$1:$2]", query).rstrip().removesuffix(b";")


def _sendable(
    rows: Rows, talk: Conversation, pairs: Sequence[tuple[ClaimedRow, Any]], apart: Apart
) -> list[tuple[ClaimedRow, Any]]:
    """The rows whose outcomes can be sent; the errors of the others go to `apart`."""
    fine = []
    for row, move in pairs:
        outcome = getattr(move, "outcome", None)
        try:
            for text in () if outcome is None else rows.asks.texts(outcome):
                if text is not None:
                    text.encode(talk.encoding)
        except Exception as error:
            error.__context__ = None  # the same error, of the try with all rows
            apart.refused[row.key] = error.with_traceback(None)
        else:
            fine.append((row, move))
    return fine


def _read(apart: Apart, keys: Sequence[str] | None, answers: Sequence[tuple[Any, ...]]) -> None:
    if keys is None:
        apart.done |= dict(answers)
        return
    *answers, (*_, reached, _, _, _) = answers
    for key, became, nth, code, said, violated in answers:
        if nth is None:
            apart.done[key] = became
        else:
            apart.refused[keys[nth - 1]] = refusal(code, said, violated)
    apart.untried.update(keys[reached - 1 :])


def refusal(code: str, said: str, violated: str) -> psycopg.Error:
    """The error that psycopg would have raised."""
    try:
        kind = errors.lookup(code)
    except KeyError:
        kind = errors.get_base_exception(code)
    about = {DiagnosticField.SQLSTATE: code, DiagnosticField.MESSAGE_PRIMARY: said}
    if violated:
        about[DiagnosticField.CONSTRAINT_NAME] = violated
    return kind(said, info={name: text.encode() for name, text in about.items()})
