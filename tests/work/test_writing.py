"""What jobs and rows have in common when outcomes are written: how much one statement carries, and what a lost reply leaves behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.support.proxy import Proxy
from tests.support.watching import Watched
from tests.work.rows.field import Field
from trueup import App, To
from trueup.events import Events, JobClaimLost, JobCompleted
from trueup.store.db.connect import RETRYABLE
from trueup.testing.worker import ManualWorker
from trueup.work import writing
from trueup.work.writing import Pending, Writer, parts

pytestmark = pytest.mark.asyncio

SIZES = [400, 400, 400, 5_000, 400, 400]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The sizes of the outcomes in each batch; a thousand bytes are the most for several."""
    monkeypatch.setattr(writing, "MAX_BYTES", 1_000)
    following, batches = Writer._next, list[list[int]]()

    def noted(self: Writer[Any, Any]) -> list[Any]:
        batch = following(self)
        if batch:
            batches.append([each.size for each in batch])
        return batch

    monkeypatch.setattr(Writer, "_next", noted)
    return batches


async def test_a_batch_of_jobs_is_bounded_in_bytes(still: App, worker: ManualWorker, sent: list[list[int]]) -> None:
    @still.job
    async def text(size: int) -> str:
        return "x" * (size - 2)  # as JSON it has quotes

    await text.enqueue_many((size,) for size in SIZES)
    assert await worker.run_pending() == len(SIZES)
    assert sent == [[400, 400], [400], [5_000], [400, 400]]


async def test_a_batch_of_rows_is_bounded_in_bytes(still: App, sent: list[list[int]]) -> None:
    field = Field(still)
    await field.prepare()
    await field.do("alter table things alter note type text")
    await field.put(len(SIZES))
    field.fix(lambda row: To("done", note="x" * SIZES[row.id - 1]), concurrency=1)
    counts = await field.sweep()
    await field.close()
    assert counts.changed == len(SIZES)
    assert sorted(size for batch in sent for size in batch) == sorted(SIZES)
    assert all(len(batch) == 1 or sum(batch) <= 1_000 for batch in sent)


@pytest.mark.parametrize("lookup", ["unanswered", "refused"])
async def test_what_was_written_before_a_failed_lookup_is_not_reported_as_lost(
    database_url: str, monkeypatch: pytest.MonkeyPatch, lookup: str
) -> None:
    """The reply to one finish is lost. The next statement writes another job, and then the lookup of the first one fails."""
    with Proxy.before(database_url) as proxy:
        app = App(proxy.url(database_url), connect_timeout="2s")
        events = Watched(app)

        @app.job
        async def send(n: int) -> None: ...

        async def end_one(n: int) -> None:
            await send.enqueue(n)
            await worker.claim()
            await worker.run_one()

        async def refused(*_: object) -> None:
            monkeypatch.undo()
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")

        async with app:
            worker = ManualWorker(app)
            await worker.begin()
            try:
                await end_one(1)
                loss = proxy.drop_next_reply(b"insert into")
                with pytest.raises(RETRYABLE):
                    await worker.finish()
                loss.wait(5)
                await end_one(2)
                if lookup == "unanswered":
                    loss = proxy.drop_next_reply(b"WorkerLost")
                    with pytest.raises(RETRYABLE):
                        await worker.finish()
                    loss.wait(5)
                else:
                    monkeypatch.setattr(worker.worker.finisher._jobs, "ended_as_mine", refused)
                await worker.finish()
            finally:
                await worker.end()
        assert len(events.of(JobCompleted)) == 2
        assert events.of(JobClaimLost) == []


# -- what becomes of a group whose statement fails --------------------------------------------------------------------

DEADLOCK = psycopg.errors.DeadlockDetected("again")
BROKEN = psycopg.OperationalError("the connection is lost")
REFUSED = psycopg.errors.CheckViolation("not this one")


class Slate(Writer[Pending, None]):
    """Statements fail with these errors, one after the other; the next ones succeed, unless the culprit is among them."""

    max_at_once = 3
    max_repeats = 2
    crash_points = ("before_finish", "after_finish")

    def __init__(self, *errors: Exception, culprit: Pending | None = None) -> None:
        super().__init__(Events(), timedelta())
        self.errors = list(errors)
        self.culprit = culprit
        self.sent: list[int] = []
        self.blamed: list[Exception] = []

    async def _write(self, batch: list[Pending]) -> None:
        await self._send(batch)

    def _ready(self, group: list[Pending]) -> list[Pending]:
        return group

    async def _reach(self) -> None:
        """It answers."""

    async def _statement(self, group: list[Pending]) -> None:
        self.sent.append(len(group))
        if self.errors:
            raise self.errors.pop(0)
        if self.culprit in group:
            raise REFUSED

    def _answered(self, group: list[Pending], answer: None) -> None:
        self._forget(group)

    def _blame(self, one: Pending, error: Exception) -> None:
        self.blamed.append(error)
        self._forget([one])


async def test_a_statement_has_no_more_outcomes_than_it_may() -> None:
    slate = Slate()
    for _ in range(7):
        slate._add(Pending())
    await slate.run_once()
    assert slate.sent == [3, 3, 1]


@pytest.mark.parametrize("nth", [0, 1, 2])
async def test_one_that_is_refused_is_found_and_the_others_are_written(nth: int) -> None:
    outcomes = [Pending() for _ in range(3)]
    slate = Slate(culprit=outcomes[nth])
    for each in outcomes:
        slate._add(each)
    await slate.run_once()
    assert slate.blamed == [REFUSED]
    assert slate._pending == []
    assert slate.sent[0] == 3
    assert sum(count == 1 for count in slate.sent) >= 1, "the culprit alone"


async def test_what_the_server_asks_to_repeat_waits_a_moment_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "REPEAT_PAUSE", 60.0)
    slate = Slate(DEADLOCK)
    slate._add(Pending())
    assert 0 < await slate.run_once() <= 60
    assert slate.sent == [1]


async def test_what_it_asks_to_repeat_again_and_again_is_divided_and_then_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "REPEAT_PAUSE", 0.0)
    slate = Slate(*[DEADLOCK] * 100)
    slate._add(Pending())
    slate._add(Pending())
    await slate.run_once()
    assert slate.blamed == [DEADLOCK, DEADLOCK]
    assert slate.sent == [2, 2, 1, 1, 2, 1, 1]


async def test_an_outcome_with_a_lost_answer_stays_uncertain_after_a_refusal() -> None:
    slate, one = Slate(BROKEN, DEADLOCK), Pending()
    slate._add(one)
    with pytest.raises(psycopg.OperationalError):
        await slate.run_once()
    assert one.uncertain
    await slate.run_once()
    assert one.repeats == 1
    assert one.uncertain


@pytest.mark.parametrize("error", [psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable])
@pytest.mark.parametrize(("took", "divided"), [(5.0, [[1], [2], [3], [4]]), (0.1, [[1, 2], [3, 4]])])
async def test_what_is_refused_after_a_long_wait_is_sent_one_by_one(
    error: type[psycopg.Error], took: float, divided: list[list[int]]
) -> None:
    """Each half with the culprit would wait as long again; a refusal that comes at once is found with fewer statements in halves."""
    assert parts([1, 2, 3, 4], error("too long"), took) == divided
    assert parts([1, 2, 3, 4], psycopg.errors.CheckViolation("no"), took) == [[1, 2], [3, 4]]


class Deaf(Writer[Pending, None]):
    """Whose server is away; it was there when the first statement was sent."""

    max_at_once, max_repeats, crash_points = 10, 1, ("before_row_settle", "after_row_settle")

    async def _write(self, batch: list[Pending]) -> None:
        await self._send(batch)

    def _ready(self, group: list[Pending]) -> list[Pending]:
        return group

    async def _reach(self) -> None:
        raise ConnectionError("nothing listens there")

    async def _statement(self, group: list[Pending]) -> None:
        raise ConnectionError("it hung up")

    def _blame(self, one: Pending, error: Exception) -> None:
        raise AssertionError(error)


async def test_a_server_that_is_away_for_long_blames_nothing() -> None:
    writer, one = Deaf(Events(), timedelta(0)), Pending()
    writer._add(one)
    for _ in range(20):
        with pytest.raises(ConnectionError):
            await writer.run_once()
    assert one.breaks == 1
