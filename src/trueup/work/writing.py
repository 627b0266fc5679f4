"""Writes how work ended, many outcomes with one statement (group commit). Finished jobs and handled rows are written this way.

An outcome is pending until the database has answered for it. Outcomes are gathered for a moment and taken in batches, bounded in
number and in bytes; a subclass divides a batch into groups, one statement each. Every statement is fenced, so sending one again
does no harm.

When no answer comes, the outcomes of the group are `uncertain`: the statement may have been carried out. They stay pending, and the
loop pauses. A statement may also end its connection by itself (its backend crashes, or a value is larger than the protocol allows).
So an outcome without an answer is sent again only after the server has answered another statement. From the second time on it goes
alone, after all others; when it has ended its connection too often, it is refused. When the server's error is transient (a deadlock,
say), the group is sent once more after a moment. When it refuses the statement, or a value cannot even be sent, the group is divided until the culprit is alone;
the others are written.

A subclass decides what becomes of an outcome that is refused alone: a job's is written without its texts, a row's becomes a failed
attempt. It may also find the culprit in another way: for rows, the server itself tries the parts of a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from psycopg import errors

from trueup import faults
from trueup.clock import elapsed
from trueup.events import Events
from trueup.store.db.connect import is_away, unanswered
from trueup.texts import describe
from trueup.work.service import Service

MAX_BYTES = 8_000_000  # of texts in one statement; one outcome may be larger
REPEAT_PAUSE = 0.05  # seconds until a statement is sent again because the server has asked for it
SLOW = 1.0  # seconds; a trigger may raise the error of a timeout at once, and then sending halves is quicker
ALONE_FROM = 2  # statements with an outcome that have ended their connection: from then on it is sent alone
MAX_BREAKS = 4  # such statements until the outcome counts as refused; a server that restarts ends a connection once

T = TypeVar("T")


class ConnectionEnded(Exception):
    """A statement ended its connection each time it was sent, although the server answered other statements."""

    @classmethod
    def by(cls, error: BaseException) -> ConnectionEnded:
        return cls(f"the connection to PostgreSQL ended whenever this was written: {describe(error)}")


@dataclass(slots=True, kw_only=True, eq=False)
class Pending:
    """An outcome that is to be written."""

    uncertain: bool = False  # a statement with it was sent and no answer came
    breaks: int = 0  # how often a statement with it has ended its connection
    repeats: int = 0  # how often the server has asked for its statement to be repeated
    not_before: float = 0.0  # when it is tried again
    size: int = 0  # of its texts

    def failed(self, error: BaseException) -> None:
        """A statement with it has failed."""
        self.uncertain = self.uncertain or unanswered(error)

    @property
    def company(self) -> tuple[int, int]:
        """Outcomes with the same value may share a statement. The smallest value goes first."""
        return (self.breaks, id(self)) if self.breaks >= ALONE_FROM else (0, 0)


P = TypeVar("P", bound=Pending)
A = TypeVar("A")


def to_repeat(error: BaseException) -> bool:
    """Whether the server has refused the statement and asks to repeat it."""
    return is_away(error) and not unanswered(error)


def parts(group: Sequence[T], error: BaseException, took: float = SLOW) -> list[list[T]]:
    """How to send a refused group again: in halves, or one by one if each refusal takes long (`took` seconds, if known)."""
    if isinstance(error, errors.QueryCanceled | errors.LockNotAvailable) and took >= SLOW:
        return [[each] for each in group]
    middle = len(group) // 2
    return [list(group[:middle]), list(group[middle:])]


class Writer(Service, Generic[P, A]):
    """Writes outcomes. `A` is the type of a statement's answer."""

    name = "finisher"
    max_at_once: int
    max_repeats: int  # times that the server may ask for the statement of one outcome to be repeated
    crash_points: tuple[str, str]  # before a statement is sent, and after its answer has come

    def __init__(self, events: Events, gather_for: timedelta) -> None:
        super().__init__(events)
        self._gather_for = gather_for.total_seconds()
        self._pending: list[P] = []

    # -- what subclasses say ------------------------------------------------------------------------------------------

    async def _write(self, batch: list[P]) -> None:
        """`_send` these in groups. Raises errors after which to try again, with these outcomes still pending."""
        raise NotImplementedError

    def _ready(self, group: list[P]) -> list[P]:
        """The outcomes that may be written now."""
        raise NotImplementedError

    async def _statement(self, group: list[P]) -> A:
        raise NotImplementedError

    async def _reach(self) -> None:
        """Send the server a trivial statement. Raises when it does not answer."""
        raise NotImplementedError

    def _answered(self, group: list[P], answer: A) -> None:
        """Read the answer, and `_forget` the outcomes that need nothing more."""
        raise NotImplementedError

    def _blame(self, one: P, error: Exception) -> None:
        """The server refuses this outcome: decide what to write instead, or when to try again."""
        raise NotImplementedError

    @property
    def _urgent(self) -> bool:
        """Whether to write outcomes that came during the last batch at once, without gathering more."""
        return True

    async def _wait_for_more(self) -> None:
        await asyncio.sleep(self._gather_for)

    # -- the mechanism ------------------------------------------------------------------------------------------------

    def _add(self, one: P) -> None:
        self._pending.append(one)
        self._wake.set()

    def _forget(self, settled: Iterable[P]) -> None:
        gone = set(settled)
        self._pending = [each for each in self._pending if each not in gone]

    async def run_once(self) -> float:
        """Write the pending outcomes. Returns the seconds until the next one is due."""
        if self._pending and self._gather_for and len(self._pending) < self.max_at_once and not self._stop.is_set():
            await self._wait_for_more()
        while batch := self._next():
            await self._write(batch)
            if not self._urgent:
                break
        if not self._pending:
            return 60.0  # seconds; the next outcome wakes it
        return max(0.0, min(each.not_before for each in self._pending) - elapsed())

    def _next(self) -> list[P]:
        """The outcomes to write now, as many as one statement may carry."""
        batch: list[P] = []
        size, now = 0, elapsed()
        for each in self._pending:
            if each.not_before > now:
                continue
            size += each.size
            if batch and (size > MAX_BYTES or len(batch) == self.max_at_once):
                break
            batch.append(each)
        return batch

    async def _send(self, group: list[P]) -> None:
        """Write these with one statement. Outcomes that were not written stay pending. Raises when no answer came."""
        ready = self._ready(group)
        if not ready:
            return
        begun = elapsed()
        faults.hit(self.crash_points[0])
        answer = await self._answer(ready, self._statement(ready))
        if isinstance(answer, Exception):
            await self._refused(ready, answer, elapsed() - begun)
        else:
            faults.hit(self.crash_points[1])
            self._answered(ready, answer)

    async def _answer(self, group: list[P], statement: Coroutine[Any, Any, T]) -> T | Exception:
        """The answer to a statement with these, or why the server refuses it. Raises when no answer came."""
        reached = not any(each.breaks for each in group)
        try:
            if not reached:
                await self._reach()
                reached = True
            return await statement
        except BaseException as error:
            statement.close()
            for each in group:
                each.failed(error)
                each.breaks += reached and unanswered(error)
            if unanswered(error) and len(group) == 1 and group[0].breaks >= MAX_BREAKS:
                group[0].breaks = ALONE_FROM  # the move that is written instead may end its connection, too
                return ConnectionEnded.by(error)
            if unanswered(error) or not isinstance(error, Exception):
                raise
            return error.with_traceback(None)

    async def _refused(self, group: list[P], error: Exception, took: float) -> None:
        """Divide a refused group, so that the culprit neither holds up the others nor is lost itself."""
        alone = len(group) == 1
        if to_repeat(error) and max(each.repeats for each in group) < (self.max_repeats if alone else 1):
            for each in group:
                each.repeats += 1
                each.not_before = elapsed() + REPEAT_PAUSE
        elif alone:
            self._blame(group[0], error)
        else:
            await self._divide(group, error, took)

    async def _divide(self, group: list[P], error: Exception, took: float) -> None:
        for part in parts(group, error, took):
            await self._send(part)
