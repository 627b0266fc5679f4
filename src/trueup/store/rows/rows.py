"""The moves of a row of a reconciler, as statements. Each returns what happened, row by row.

A claim (`claiming`) walks the user's table or the records; a settlement writes the outcome and deletes the record, in
one statement. `Rows` is made once per reconciler, when its table has been inspected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from trueup.clock import Clock, elapsed
from trueup.jobs.failure import MAX_ERRORS
from trueup.jobs.job import Draft
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.reconciler import Reconciler
from trueup.store.db.connect import TIMED_OUT, unanswered
from trueup.store.db.load import Statements
from trueup.store.db.message import Conversation, Fetched, Query, Unreadable, numbers
from trueup.store.db.own_connection import fetch
from trueup.store.db.repository import Database
from trueup.store.db.texts import text_of
from trueup.store.enqueue import Enqueue
from trueup.store.fitted import Look, RowStatements
from trueup.store.rows.apart import Apart, settle_apart
from trueup.store.rows.asks import Asks, Done, keyed
from trueup.store.rows.batch import MIN_WINDOW, Position
from trueup.store.rows.claiming import RowClaims
from trueup.store.rows.compose import Composer, steering
from trueup.store.rows.evaluating import Evaluated, KnownRow, drop_unreadable, evaluate
from trueup.store.rows.on_table import OnTable
from trueup.store.rows.tables import Found

GUARDED_FOR, MAX_GUARDED_FOR = 60.0, 3_600.0  # seconds until statements are tried unguarded again

# A trigger that is slow for some rows makes all rows of their statement wait, and their leases cannot be renewed meanwhile.
MAX_TOGETHER = timedelta(seconds=4)  # for a statement with several rows
# For a statement with one row after that, until all quick rows are written.
MAX_BRIEFLY = timedelta(seconds=0.3)


class Rows(OnTable[RowStatements]):
    def __init__(
        self,
        claiming: Database,
        settling: Database,
        statements: Statements,
        clock: Clock,
        enqueue: Enqueue,
        reconciler: Reconciler,
        found: Found,
        *,
        owner: str,
        timeout: timedelta,
        look: Look | None = None,
    ) -> None:
        make = partial(RowStatements, statements, reconciler)
        super().__init__(claiming, statements, clock, timeout, found, make, look)
        self.settling = settling
        self.enqueue = enqueue
        self.owner = owner
        self.reconciler = reconciler
        self.paused: tuple[str, ...] = ()  # values of the `pause_by=` column whose rows are not claimed at present
        self.steer_together = steering(statements, min(timeout, MAX_TOGETHER))
        self.steer_briefly = steering(statements, min(timeout, MAX_BRIEFLY))
        self._guarded_until, self._guarded_for = float("-inf"), GUARDED_FOR
        self.claims = RowClaims(self)

    @property
    def asks(self) -> Asks:
        return Asks(self.made, self.statements)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.made.columns

    @property
    def composer(self) -> Composer:
        return self.made.composer

    @property
    def marks_rows(self) -> bool:
        """Whether a claim writes to the user's row."""
        return self.composer.marks_rows

    async def is_locked(self) -> bool:
        """Whether another session has locked the whole table against writes."""
        ((locked,),) = await self.settling.fetch(*self.asking_for_a_lock())
        return bool(locked)

    def asking_for_a_lock(self) -> tuple[bytes, dict[str, Any]]:
        """The statement of `is_locked`, for callers with a connection of their own."""
        return self.statements["tables/locked"], {"table": self.found.oid}

    # -- parameters ----------------------------------------------------------------------------------------------------

    def about(self, holder: UUID) -> dict[str, Any]:
        return {
            "now": self.clock.now(),
            "reconciler": self.reconciler.name,
            "holder": holder,
            "owner": self.owner,
            "most_errors": MAX_ERRORS,
        }

    def about_window(self, window: int | None = None) -> dict[str, Any]:
        return {
            "now": self.clock.now(),
            "reconciler": self.reconciler.name,
            "window": window or self.window(self.reconciler.batch),
            "paused": list(self.paused),
        }

    def behind(self, place: Position | None) -> dict[str, Any]:
        return {} if place is None else {"after_order": place.order, **numbered("after_", place.keys)}

    def window(self, most: int) -> int:
        return max(MIN_WINDOW, 4 * most)

    # -- rows that raise ----------------------------------------------------------------------------------------------

    @property
    def guarded(self) -> bool:
        """Whether `where=` has raised recently: statements then pass over rows that are known to raise."""
        return elapsed() < self._guarded_until

    def guard(self) -> bool:
        """Send guarded statements for the next GUARDED_FOR seconds, or longer if they were guarded a moment ago. False when they are guarded already."""
        if self.found.spec.where is None:
            return False
        before, now = self.guarded, elapsed()
        if not before:  # each try costs time: it is made less often while it fails
            again = now < self._guarded_until + self._guarded_for
            self._guarded_for = min(self._guarded_for * 2, MAX_GUARDED_FOR) if again else GUARDED_FOR
        self._guarded_until = now + self._guarded_for
        return not before

    async def evaluate(self, rows: Sequence[KnownRow]) -> Evaluated:
        """Find those of these rows whose evaluation raises."""
        return await evaluate(self, self.made.once("evaluate"), rows)

    async def drop_unreadable(self, rows: Sequence[KnownRow]) -> set[str]:
        """Delete the records of these rows whose keys no row can have any more. Returns their keys."""
        return await drop_unreadable(self, self.made.once("readable"), rows)

    # -- settling -----------------------------------------------------------------------------------------------------

    async def settle(
        self,
        holder: UUID,
        rows: Sequence[ClaimedRow],
        moves: Sequence[Any],
        tx: AsyncConnection[Any] | None = None,
        *,
        touch: bool = True,
        briefly: bool = False,
    ) -> dict[str, Done]:
        """Write these moves and enqueue the jobs of their outcomes, together. A key that does not come back was lost.

        It runs in a transaction of its own, or in `tx`, which the caller commits. If the database refuses one row, all of them
        fail: use `settle_apart` then. Without `touch`, the marks of a claim stay in the user's rows.
        """
        asks, drafts = self.asks.of(rows, moves, touch=touch)
        steer = self.steer_together if len(rows) > 1 else self.steer_briefly if briefly else self.steer
        if tx is None and len(asks) == 1 and not drafts:
            return dict(await self.settling.fetch_steered(steer, asks[0][0], {**asks[0][1], **self.about(holder)}))
        if tx is not None:
            return await self._settle(holder, asks, drafts, tx)
        done: dict[str, Done] = {}
        async with self.settling.conversation() as talk:
            texts = [talk.filled(Query(query, {**params, **self.about(holder)})) for query, params in asks]
            for answer in await talk.each_afresh(steer, texts, () if drafts else [talk.commit]):
                done |= dict(answer)
            if drafts:
                await self.follow(drafts, done, talk)
        return done

    async def settle_apart(
        self, holder: UUID, rows: Sequence[ClaimedRow], moves: Sequence[Any], *, touch: bool = True
    ) -> Apart:
        """`settle`, but rows that the database refuses do not affect the others. Raises an error that is not about a row."""
        return await settle_apart(self, holder, rows, moves, touch=touch)

    async def _settle(
        self,
        holder: UUID,
        asks: Sequence[tuple[bytes, dict[str, Any]]],
        drafts: Mapping[str, Sequence[Draft]],
        connection: AsyncConnection[Any],
    ) -> dict[str, Done]:
        done: dict[str, Done] = {}
        for query, params in asks:
            done |= dict(await fetch(connection, query, {**params, **self.about(holder)}))
        await self._enqueue(drafts, done, connection)
        return done

    async def follow(self, drafts: Mapping[str, Sequence[Draft]], done: Mapping[str, Done], talk: Conversation) -> None:
        """Enqueue the jobs of rows that were changed, and commit."""
        await self._enqueue(drafts, done, talk.connection)
        await talk.end()

    async def _enqueue(
        self, drafts: Mapping[str, Sequence[Draft]], done: Mapping[str, Done], connection: AsyncConnection[Any]
    ) -> None:
        following = [draft for key, then in drafts.items() if done.get(key) == "changed" for draft in then]
        if following:
            await self.enqueue.together(following, connection)

    async def checkpoint(self, row: ClaimedRow, columns: Mapping[str, Any]) -> Done | None:
        """Write these columns to a claimed row, which stays claimed. None: the claim was lost."""
        names = tuple(sorted(columns))
        params = {**keyed([row]), **self.asks.seen([row])}
        for n, name in enumerate(names, 1):
            params[f"c{n}"] = [text_of(columns[name], self.found.columns[name])]
        query = self.made.checkpoint(names)
        answer = await self.settling.fetch_steered(self.steer, query, {**params, **self.about(row.holder)})
        if not answer:
            return None
        done, seen = answer[0]
        if done == "changed":
            row.seen = seen
        return cast(Done, done)

    # -- keeping ------------------------------------------------------------------------------------------------------

    @property
    def renewal_writes(self) -> bool:
        """Whether a renewal writes to the user's row."""
        return self.composer.marks_rows and self.found.spec.lease_columns is not None

    def renewal(
        self, holder: UUID, rows: Sequence[ClaimedRow], started: Sequence[bool] | None = None, *, touch: bool = True
    ) -> tuple[bytes, dict[str, Any]]:
        """The statement that extends these leases, for callers with a connection of their own.

        `started` says whose handler has begun: if the process dies, these rows are suspects. Without `touch`, leases in the user's
        own columns are not extended.
        """
        params = {**self.about(holder), "lease_for": self.reconciler.lease_for.total_seconds()}
        params["started"] = list(started or [False] * len(rows))
        if touch and self.renewal_writes:
            return self.made.once("renew_both"), {**params, **keyed(rows)}
        keys = {"keys": [row.key for row in rows], "terms": numbers(row.term for row in rows)}
        return self.statements["rows/renew"], {**params, **keys}

    async def forget(self, unread: Sequence[str] = ()) -> int:
        """Delete some of the records of rows that no longer match. Returns how many.

        `unread` are keys of rows whose evaluation raises; their records stay.
        """
        return await self._forget(self.made.once("forget"), self.about_window(), unread)

    async def refund(self, rows: Sequence[ClaimedRow]) -> None:
        """Give back the attempts that these rows spent before the circuit breaker opened."""
        keys = {"keys": [row.key for row in rows], "terms": numbers(row.term for row in rows)}
        await self.settling.fetch(self.statements["rows/refund"], {"reconciler": self.reconciler.name, **keys})

    async def next_due_in(self) -> float | None:
        """Seconds until the next row that rests is due; None without one."""
        params = {"now": self.clock.now(), "reconciler": self.reconciler.name}
        ((seconds,),) = await self.claiming.fetch(self.statements["rows/next_due"], params)
        return None if seconds is None else float(seconds)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def listed(
        self, most: int, *, values: bool = False
    ) -> list[tuple[str, str | None, datetime | None, int, Mapping[str, Any]]]:
        """(key, state, due since, attempts, the row) of the rows that match now, in the reconciler's order. Claims nothing.

        The row is empty without `values`: its columns may be large, and are not read.
        """
        params = {"now": self.clock.now(), "reconciler": self.reconciler.name, "most": most}
        columns = self.made.columns if values else ()
        rows = await self._counted("listed", params, values)
        return [(*row[:4], dict(zip(columns, row[4:], strict=True))) for row in rows]

    async def _counted(self, name: str, params: dict[str, Any], *args: Any) -> Fetched:
        """The answer of a statement that claims nothing; guarded, after `where=` has raised."""
        try:
            query = self.made.once(name, *args, guarded=self.guarded)
            return await self.claiming.fetch_steered(self.steer, query, params)
        except psycopg.Error as error:
            if unanswered(error) or isinstance(error, TIMED_OUT) or not self.guard():
                raise
        return await self.claiming.fetch_steered(self.steer, self.made.once(name, *args, guarded=True), params)


def check_readable(values: Mapping[str, Any]) -> None:
    """Raise ValueError naming the column that Python cannot read."""
    for name, value in values.items():
        if isinstance(value, Unreadable):
            raise ValueError(f"column {name!r} cannot be read: {value.error}") from value.error


def numbered(prefix: str, texts: Sequence[str]) -> dict[str, str]:
    return {f"{prefix}{n}": text for n, text in enumerate(texts, 1)}
