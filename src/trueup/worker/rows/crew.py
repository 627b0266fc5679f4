"""The rows a sweep has in hand, and the handlers at work on them: up to `concurrency` at a time, each row in a task of its own.

A row ends here in one of four ways: its handler returned or raised; it wrote its outcome itself; the worker stops; or the
lease is gone. Cancelling a handler is a request: one that ignores it keeps its place until it returns, and its row is not
renewed any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random

from trueup.clock import elapsed
from trueup.events import Events, RowChanged, RowConflict
from trueup.reconcile.decide import GiveBack, Lost, Verdict, decide
from trueup.reconcile.outcome import Outcome
from trueup.store.rows import Batch, Rows
from trueup.worker.rows.handling import Handled, Handling
from trueup.worker.rows.held import Held
from trueup.worker.rows.settler import Count, Settler, Settling, changed_event

WATCH_EVERY = 0.25  # seconds between looks at the deadlines of what is in hand


class Crew:
    def __init__(
        self,
        rows: Rows,
        handling: Handling,
        settler: Settler,
        events: Events,
        random: Random,
        *,
        judge: Callable[[Held, Handled, Verdict], Verdict],
        on_settled: Callable[[Settling, Count], None],
    ) -> None:
        self._rows = rows
        self._handling = handling
        self._settler = settler
        self._events = events
        self._random = random
        self._judge = judge
        self._on_settled = on_settled
        self._waiting: deque[Held] = deque()
        self._held: dict[tuple[str, int], Held] = {}
        self._running = 0
        self._changed = asyncio.Event()
        self._watch: asyncio.TimerHandle | None = None
        self.concurrency = rows.reconciler.concurrency
        self.stopping = False

    # -- what is in hand ----------------------------------------------------------------------------------------------

    def in_hand(self) -> Iterable[Held]:
        """Also called on the keeper's thread."""
        return list(self._held.values())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._held

    def put(self, batch: Batch, sent: float) -> None:
        for row, wait in zip(batch.rows, batch.waits, strict=True):
            held = Held(row, sent, wait)
            self._held[row.key, row.term] = held
            self._waiting.append(held)
        self._look()
        self._start()

    async def until(self, ready: Callable[[], bool]) -> None:
        """Until this holds; it is asked again whenever a row leaves the hand."""
        while not ready():
            self._changed.clear()
            await self._changed.wait()

    def note(self) -> None:
        """Something happened that somebody may wait for."""
        self._changed.set()

    def give_back(self) -> None:
        """What has not been begun goes back."""
        while self._waiting:
            held = self._waiting.popleft()
            self._settle(held, GiveBack())

    def interrupt(self) -> None:
        """Cancel what still runs; it goes back."""
        self.give_back()
        for held in self.in_hand():
            held.cancel("shutdown")

    def lost(self, those: Sequence[Held]) -> None:
        """Their leases are gone."""
        for held in those:
            held.row.trust.end()
            if held.task is None and held in self._waiting:
                self._waiting.remove(held)
                self._settle(held, Lost())
            else:
                held.cancel("lost")

    # -- running ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        while self._waiting and self._running < self.concurrency:
            held = self._waiting.popleft()
            if not self._enough_lease(held):
                self._settle(held, GiveBack())
                continue
            self._running += 1
            held.task = asyncio.create_task(self._one(held), name=f"trueup {held.row.reconciler}")

    def _enough_lease(self, held: Held) -> bool:
        """A row is not begun with little of its lease left: renewals fail, and somebody else may soon begin, too."""
        return held.row.trust.left(self._rows.clock.elapsed()) > self._rows.reconciler.lease_for.total_seconds() / 3

    async def _one(self, held: Held) -> None:
        held.started = elapsed()
        try:
            if held.wait:
                await asyncio.sleep(held.wait.total_seconds())
            handled = await self._handling.run(held)
        except asyncio.CancelledError:
            self._settle(held, Lost() if held.cancelled == "lost" else GiveBack())
        except BaseException as error:  # ours, not the handler's: the row must not stay in hand because of it
            self._settle(held, self._decided(held, Handled(error)))
        else:
            self._ended(held, handled)
        finally:
            self._running -= 1
            self._start()
            self._changed.set()

    def _ended(self, held: Held, handled: Handled) -> None:
        if held.cancelled == "lost":
            self._settle(held, Lost())
        elif handled.done is None:
            self._settle(held, self._decided(held, handled))
        elif handled.done == "changed":
            self._written(held, handled)
        else:  # refused in the handler's own transaction, which is rolled back: only the claim is left to give up
            count: Count = "conflict" if handled.done == "conflict" else "unchanged"
            if count == "conflict":
                self._events.emit(RowConflict(held.row.reconciler, held.row.key, f"{handled.ended!r:.200}"))
            self._settle(held, GiveBack(), counts_as=count)

    def _decided(self, held: Held, handled: Handled) -> Verdict:
        reconciler = self._rows.reconciler
        verdict = decide(handled.ended, held.row, reconciler, self._random, made=handled.made)
        return self._judge(held, handled, verdict)

    def _written(self, held: Held, handled: Handled) -> None:
        """In the handler's own transaction: nothing is left to write."""
        assert isinstance(handled.ended, Outcome)
        verdict = self._decided(held, handled)
        settling = Settling(held.row, verdict, elapsed() - (held.started or elapsed()))
        self._leave(held)
        if self._events.wants(RowChanged) and getattr(verdict, "outcome", None) is not None:
            self._events.emit(changed_event(settling))
        self._on_settled(settling, "changed" if getattr(verdict, "outcome", None) is not None else "unchanged")

    def _settle(self, held: Held, verdict: Verdict, *, counts_as: Count | None = None) -> None:
        self._leave(held)
        duration = 0.0 if held.started is None else elapsed() - held.started
        self._settler.put(Settling(held.row, verdict, duration, counts_as))

    def _leave(self, held: Held) -> None:
        held.keep = False
        self._held.pop((held.row.key, held.row.term), None)
        self._changed.set()

    # -- watching -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """While something is in hand: give up what can no longer be trusted, in case the keeper hangs."""
        if self._watch is None and self._held:
            self._watch = asyncio.get_running_loop().call_later(WATCH_EVERY, self._watched)

    def _watched(self) -> None:
        self._watch = None
        now = self._rows.clock.elapsed()
        over = [held for held in self._held.values() if held.cancelled is None and held.row.trust.left(now) <= 0]
        if over:
            self.lost(over)
        self._look()
