"""The rows that a sweeper has in hand, and their handlers: up to `concurrency` run at a time, each in a task of its own.

A row leaves the hand when its handler has returned or raised, when the handler has written the outcome itself, when the worker stops,
or when the row's lease is gone. Cancelling a handler is a request: a handler that ignores it keeps its place until it returns, but its
row leaves the hand when the lease is gone, and its result is ignored. When such handlers take every place, the waiting rows are
released, so that other workers may have them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from trueup.clock import elapsed
from trueup.events import Events, RowConflict, ServiceFailed
from trueup.jobs.failure import Failure, describe, type_name
from trueup.reconcile.breaker import Breaker
from trueup.reconcile.counts import Count
from trueup.reconcile.decide import MIN_DELAY, Change, Lost, Move, Release, Remove, Rest, RetryAfter, Written, shown
from trueup.reconcile.outcome import Outcome
from trueup.store.rows.batch import Batch
from trueup.store.rows.rows import Rows
from trueup.work.rows.beside import Changes
from trueup.work.rows.breakers import Breakers, Opens
from trueup.work.rows.finisher import RowFinisher
from trueup.work.rows.handling import Handling
from trueup.work.rows.held import Handled, RowInHand
from trueup.work.rows.judge import Judge
from trueup.work.rows.refusals import MAX_REPEATS
from trueup.work.rows.reports import RowEnding
from trueup.work.rows.sweep import Sweep
from trueup.work.writing import ConnectionEnded

WATCH_EVERY = 0.25  # seconds between looks at the deadlines of what is in hand
LAST_WORD = 1.0  # seconds for cancelled handlers to end


@dataclass(eq=False)
class RowHand:
    _rows: Rows
    _handling: Handling
    _finisher: RowFinisher
    _events: Events
    _judge: Judge
    _breakers: Breakers
    _changes: Changes
    _waiting: deque[RowInHand] = field(default_factory=deque)
    _held: dict[tuple[str, int], RowInHand] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _watch: asyncio.TimerHandle | None = None
    _uncertain_ends: Counter[str] = field(default_factory=Counter)  # by key: commits in a row without an answer
    stopping: bool = False  # no handler begins any more

    # -- what is in hand ----------------------------------------------------------------------------------------------

    def in_hand(self) -> Iterable[RowInHand]:
        """Also called on the renewer's thread."""
        return list(self._held.values())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._held

    @property
    def stuck(self) -> bool:
        """Whether every place is taken by a handler that has lost its row and does not end."""
        full = len(self._tasks) >= self._rows.reconciler.concurrency
        return full and all(held.state == "waiting" for held in self._held.values())

    def put(self, batch: Batch, sent: float, sweep: Sweep) -> list[RowInHand]:
        """Take in claimed rows. A row that may have crashed a process comes first: it has a place of its own."""
        now, put = elapsed(), []
        for row, wait in zip(batch.rows, batch.waits, strict=True):
            may_begin = now + wait.total_seconds() if wait else 0.0
            held = RowInHand(row, sent, may_begin, claimed=self._rows.clock.elapsed(), sweep=sweep)
            self._held[row.key, row.term] = held
            put.append(held)
            if row.alone:
                self._waiting.appendleft(held)
            else:
                self._waiting.append(held)
        self._keep_watching()
        if self.stopping:
            self.release()
        self._start()
        return put

    def release(self) -> None:
        """Release the rows whose handlers have not begun."""
        while self._waiting:
            self._settle(self._waiting.popleft(), Release())

    def interrupt(self) -> None:
        """Cancel the handlers that still run, and release their rows."""
        self.release()
        for held in self.in_hand():
            held.cancel("shutdown")

    def lost(self, those: Sequence[RowInHand]) -> None:
        """The leases of these rows are gone."""
        for held in those:
            if held.written is not None or not held.in_hand:
                continue
            held.row.trust.end()
            if held.state == "waiting":
                self._waiting.remove(held)
            held.cancel("lost")
            self._settle(held, Lost())

    async def kill(self) -> None:
        """Drop everything; nothing is released."""
        self.stopping = True
        self._waiting.clear()
        if self._watch is not None:
            self._watch.cancel()
        for held in self.in_hand():
            held.cancel("lost")
            held.state = "gone"
        self._held.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WORD)

    # -- running ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        while self._waiting and len(self._tasks) < self._rows.reconciler.concurrency and not self.stopping:
            held = self._waiting.popleft()
            if not self._enough_lease(held):
                self._settle(held, Release())
                continue
            if (delay := self._breakers.held_up(held)) is not None:
                self._settle(held, Rest(max(delay, MIN_DELAY), succeeded=False))
                continue
            self._begin(held)

    def _begin(self, held: RowInHand) -> None:
        held.state = "running"
        held.task = asyncio.create_task(self._run(held), name=f"trueup {held.row.reconciler}")
        self._tasks.add(held.task)
        # A task that is cancelled before its first step runs no code of its own.
        held.task.add_done_callback(partial(self._task_ended, held))

    def _follow(self) -> RowInHand | None:
        """Begin the next row, if it may begin at once; the row that ends now will lock it on its connection."""
        if not self._waiting or self.stopping:
            return None
        held = self._waiting[0]
        if held.row.spent or held.not_before > elapsed() or not self._enough_lease(held):
            return None
        if self._rows.reconciler.pause_by is not None:
            return None  # `_start` asks its breaker
        held.opening = asyncio.get_running_loop().create_future()
        self._begin(self._waiting.popleft())
        return held

    def _enough_lease(self, held: RowInHand) -> bool:
        """Whether enough of the lease is left to begin. If little is left, renewals fail, and another worker may soon take the row over."""
        return held.row.trust.left(self._rows.clock.elapsed()) > self._rows.reconciler.lease_for.total_seconds() / 3

    async def _run(self, held: RowInHand) -> None:
        try:
            wait = held.not_before - elapsed()
            if wait > 0:
                await asyncio.sleep(wait)
            self._handler_ended(held, await self._handling.run(held, self._follow))
        except asyncio.CancelledError:
            self._handler_ended(held, None)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # trueup's own, or a group with exceptions that end a process
            self._handler_ended(held, Handled(error))
        finally:
            assert held.task is not None
            self._task_ended(held, held.task)

    def _task_ended(self, held: RowInHand, task: asyncio.Task[None]) -> None:
        if task not in self._tasks:
            return
        self._tasks.discard(task)
        self._handling.let_go(held)
        if held.in_hand:  # in every case the row must leave the hand
            self._settle(held, Release(begun=held.started is not None))
        self._start()
        self._changes.note()

    def _handler_ended(self, held: RowInHand, handled: Handled | None) -> None:
        """Turn the end of a handler into a move. None: the handler was cancelled."""
        if not held.in_hand:
            return
        error = handled.ended if handled is not None and isinstance(handled.ended, BaseException) else None
        if not held.uncertain and self._uncertain_ends:
            self._uncertain_ends.pop(held.row.key, None)
        if held.written is not None:
            self._written(held, held.written, error)
        elif handled is None or (held.cancelled == "shutdown" and error is not None):
            self._settle(held, Release(begun=held.started is not None))
        elif held.uncertain and self._rows.reconciler.claim == "row_lock":
            self._settle(held, self._uncertain(held, error))
        elif handled.refused is None:
            self._settle(held, self._judged(held, handled))
        elif handled.refused in ("contested", "undone"):
            self._not_kept(held, handled.settled, handled.refused)
        else:  # its transaction is rolled back, and only the claim is to be released
            if handled.refused == "conflict":
                outcome = "not begun" if handled.settled is None else shown(handled.settled)
                self._events.emit(RowConflict(held.row.reconciler, held.row.key, outcome))
            self._settle(held, Release(), counts_as="conflict" if handled.refused == "conflict" else "unchanged")
        if error is not None:
            # The move has the texts of the error. Its traceback would be a reference cycle for each failure.
            error.__traceback__ = None

    def _uncertain(self, held: RowInHand, error: BaseException | None) -> Move:
        """It is unknown whether the commit happened: leave the row to the worker that finds it after its lease. If the row's commits end
        without an answer again and again, the row itself is the reason: a failed attempt."""
        key = held.row.key
        self._uncertain_ends[key] += 1
        if self._uncertain_ends[key] <= MAX_REPEATS or not isinstance(error, Exception):
            return Lost()
        return self._finisher.failures.of(held.row, ConnectionEnded.by(error))

    def _judged(self, held: RowInHand, handled: Handled) -> Move:
        """The move for the row. If it opens the breaker for all rows, the waiting rows are released."""
        judged = self._judge.of(held, handled)
        held.worked = not isinstance(handled.ended, BaseException)
        self._open(held, judged.breaker, judged.opens)
        return judged.move

    def _open(self, held: RowInHand, breaker: Breaker, opens: Opens | None) -> None:
        if opens is not None and self._breakers.open(held, breaker, opens):
            self.release()

    # -- what the database answers ------------------------------------------------------------------------------------

    def outcome_written(self, held: RowInHand) -> None:
        if held.worked:
            held.worked = False
            self._breakers.written(held)

    def refused(self, held: RowInHand, error: Exception, *, exhausted: bool = False) -> Move:
        """The move for a row that PostgreSQL refuses to claim, or whose outcome it refuses; other rows may meet the same refusal.

        `exhausted`: whether the outcome of `exhausted=` may be the next to be written.
        """
        breaker, opens = self._judge.of_refusal(held, error)
        self._open(held, breaker, opens)
        if opens is not None:
            return RetryAfter(breaker.pause(0), Failure.of(error, held.row.attempt), spend=False)
        return self._finisher.failures.of(held.row, error, patient=breaker.several_unwritten, exhausted=exhausted)

    def refused_beside_others(self, held: RowInHand) -> None:
        """PostgreSQL refuses this row, and has accepted others."""
        self._breakers.of(held).suspect(held.row.key)

    def _not_kept(self, held: RowInHand, outcome: Outcome | None, how: Literal["contested", "undone"]) -> None:
        """A failed attempt: the handler's own transaction was rolled back, because its outcome did not stay as written."""
        error = self._finisher.reports.not_kept(held.row, outcome, how)
        move = self._finisher.failures.of(held.row, error, exhausted=how == "undone")
        self._settle(held, move, counts_as="undone" if how == "undone" else "conflict")

    def _written(self, held: RowInHand, outcome: Outcome, error: BaseException | None) -> None:
        """The handler has committed the outcome in its own transaction; what it did afterwards does not matter."""
        move = self._judged(held, Handled(outcome))
        self.outcome_written(held)
        if self._rows.reconciler.claim == "row_lock":  # what is known about the row is left to settle
            if isinstance(move, Change | Remove):
                move = Written(move.outcome, getattr(move, "rest_for", None))
            self._settle(held, move, counts_as="unchanged" if isinstance(move, Rest) else None)
        else:
            self._leave(held)
            self._finisher.reports.written(RowEnding(held, move, _duration(held)))
        if error is not None:
            service = f"handler of {held.row.reconciler}, after its outcome was written"
            self._events.emit(ServiceFailed(service, type_name(error), describe(error)).because(error))

    def _settle(self, held: RowInHand, move: Move, *, counts_as: Count | None = None) -> None:
        self._leave(held)
        self._finisher.put(RowEnding(held, move, _duration(held), counts_as, uncertain=held.uncertain))

    def _leave(self, held: RowInHand) -> None:
        held.state, held.until = "writing", None
        self._held.pop((held.row.key, held.row.term), None)
        self._changes.note()

    # -- watching -----------------------------------------------------------------------------------------------------

    def _keep_watching(self) -> None:
        """Check leases while rows are in hand, in case the renewer hangs."""
        if self._watch is None and self._held:
            self._watch = asyncio.get_running_loop().call_later(WATCH_EVERY, self._give_up_expired)

    def _give_up_expired(self) -> None:
        """Give up rows whose leases can no longer be trusted."""
        self._watch = None
        now = self._rows.clock.elapsed()
        self.lost([held for held in self._held.values() if held.row.trust.left(now) <= 0])
        if self.stuck:
            self.release()
        self._keep_watching()


def _duration(held: RowInHand) -> float:
    return 0.0 if held.started is None else elapsed() - held.started
