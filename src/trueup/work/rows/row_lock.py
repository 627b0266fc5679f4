"""claim='row_lock': a row is locked, handled and written in one transaction. An error rolls it back, and is recorded after that.

The lock is the fence: while it lasts, no other transaction can write to the row. If the server ends the transaction of a frozen process,
the outcome is rolled back with it. The row's record in trueup's table is written after the commit.

The message that commits one row locks the next row on the same connection, which halves the round trips. The task of the next row waits
for that message, and locks its row itself if the message could not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from trueup import faults
from trueup.errors import ConfigError, LostClaim
from trueup.reconcile.outcome import Delete, Outcome, Stay, To
from trueup.store.db import message
from trueup.store.db.connect import unaltered
from trueup.store.db.message import Answers, Part, StalePlan
from trueup.store.db.pool import HandlerConnections
from trueup.store.rows.kept import keeps_state
from trueup.store.rows.locked import Locked, not_as_read
from trueup.store.rows.rows import Rows
from trueup.work.rows.held import Handled, RowInHand, certain, gone

Call = Callable[[RowInHand, Handled, AsyncConnection[Any]], Awaitable[None]]
Follow = Callable[[], RowInHand | None]  # begins the next row, which is to be locked


def nothing() -> None:
    """Nothing follows."""


class Locking:
    def __init__(self, rows: Rows, connections: HandlerConnections, call: Call) -> None:
        self._rows = rows
        self._locked = Locked(rows)
        self._connections = connections
        self._call = call

    async def run(self, held: RowInHand, handled: Handled, follow: Follow) -> None:
        async with certain(held, handled):
            connection, answers = await self._lock(held)
            passed_on = False
            try:
                values = self._locked.values(held.row, answers)
                if values is None:
                    await self._refused(held, handled, connection)
                    return
                handled.made = self._rows.reconciler.handler.shape.make(values)
                with unaltered(connection):
                    await self._call(held, handled, connection)
                self._check(held, connection)
                passed_on = await self._write(held, handled, connection, follow)
            finally:
                if not passed_on:
                    await self._release(connection)

    async def _lock(self, held: RowInHand) -> tuple[AsyncConnection[Any], Answers]:
        """A connection, and the answers to the statements that lock the row on it; the last answer says whether it is locked."""
        if held.opening is not None:
            opened = await held.opening
            held.opening = None
            if opened is not None:
                return opened
        connection = await self._connections.take()
        try:
            answers = await message.send(connection, *self._locked.locking(held.row))
            if isinstance(answers.error, StalePlan):  # the table was altered since it was prepared on this connection
                await message.roll_back(connection)
                answers = await message.send(connection, *self._locked.locking(held.row))
            return connection, answers.check()
        except BaseException:
            await self._release(connection)
            raise

    async def _refused(self, held: RowInHand, handled: Handled, connection: AsyncConnection[Any]) -> None:
        why = await self._locked.why_not(held.row, connection)
        if why == "lost":
            raise gone(held.row)
        handled.refused = "conflict" if why == "gone" else "busy"

    def _check(self, held: RowInHand, connection: AsyncConnection[Any]) -> None:
        """Raise when what the handler returned must not be written."""
        status = connection.info.transaction_status
        if status != TransactionStatus.INTRANS:
            raise ConfigError(
                f"the transaction of claim='row_lock' was ended by its handler ({status.name}); leave it open"
            )
        if held.row.trust.left(self._rows.clock.elapsed()) <= 0:
            raise LostClaim(f"{held.row.reconciler} {held.row.key}: the lease is no longer trusted")

    async def _write(self, held: RowInHand, handled: Handled, connection: AsyncConnection[Any], follow: Follow) -> bool:
        """Write what the handler returned, in its transaction, and commit. True: the connection now belongs to the next row."""
        outcome = handled.ended
        assert isinstance(outcome, Outcome)
        change = outcome if isinstance(outcome, To | Stay | Delete) else None
        writing = [] if change is None else [self._locked.writing(held.row, change)]
        held.uncertain = True
        faults.hit("before_row_commit")
        if change is not None and change.then:
            answers = await message.send(connection, *writing)
            self._check_written(held, outcome, answers, 1)
            if len(answers):
                if answers.count(0):
                    await self._rows.enqueue.together(change.then, connection)
                await connection.commit()
            passed_on = False
        else:
            answers, passed_on = await self._commit(held, outcome, [*writing, b"COMMIT"], connection, follow)
        if change is not None and not (len(answers) and answers.count(0)):  # a user's trigger refused it
            handled.refused, handled.settled = "undone", outcome
        else:
            held.written = outcome
        return passed_on

    async def _commit(
        self,
        held: RowInHand,
        outcome: Outcome,
        ending: Sequence[Part],
        connection: AsyncConnection[Any],
        follow: Follow,
    ) -> tuple[Answers, bool]:
        """Commit, and lock the next row in the same message. True: the connection now belongs to the next row."""
        following = follow()
        opening = None if following is None else following.opening
        locking: Sequence[Part] = ()
        if following is not None:
            locking = *message.afresh(connection), *self._locked.locking(following.row)
        try:
            answers = await message.send(connection, *ending, *locking)
            self._check_written(held, outcome, answers, len(ending))
            if opening is not None and answers.error is None and not opening.done():
                opening.set_result((connection, answers))
                return answers, True
            return answers, False
        finally:
            if opening is not None and not opening.done():
                opening.set_result(None)

    def _check_written(self, held: RowInHand, outcome: Outcome, answers: Answers, statements: int) -> None:
        """Raise the error that kept this row's statements from completing. Errors after them are about the next row."""
        if len(answers) >= statements:
            return
        if keeps_state(answers.error) and not len(answers):
            held.uncertain = False
            return
        if not_as_read(answers.error) and not len(answers):
            held.uncertain = False
            raise ConfigError(  # the row is locked here, so no other transaction has changed it
                f"{outcome!r:.200}: its handler has changed the row itself, through tx, or a trigger keeps the row as it is; "
                "return the columns with the outcome instead, and see the table's BEFORE triggers"
            )
        answers.check()

    async def _release(self, connection: AsyncConnection[Any]) -> None:
        if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            await connection.rollback()
        await self._connections.give(connection)

    def let_go(self, held: RowInHand) -> None:
        """Give back the connection that was opened for a row whose handler never began."""
        opening, held.opening = held.opening, None
        if opening is None or opening.cancel():
            return
        opened = None if opening.cancelled() else opening.result()
        if opened is not None:
            opened[0].pgconn.finish()
