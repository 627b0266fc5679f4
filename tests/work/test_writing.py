"""What jobs and rows have in common when outcomes are written: how much one statement carries, and what a lost reply leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.proxy import Proxy
from tests.support.watching import Watched
from tests.work.rows.field import Field
from trueup import App, To
from trueup.events import JobClaimLost, JobCompleted
from trueup.store.db.connect import RETRYABLE
from trueup.testing.worker import ManualWorker
from trueup.work import writing
from trueup.work.writing import Writer

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


async def test_what_was_written_before_a_lookup_had_no_answer_is_not_reported_as_lost(database_url: str) -> None:
    """The reply to one finish is lost. The next statement writes another job, and then the lookup has no answer either."""
    with Proxy.before(database_url) as proxy:
        app = App(proxy.url(database_url), connect_timeout="2s")
        events = Watched(app)

        @app.job
        async def send(n: int) -> None: ...

        async with app:
            worker = ManualWorker(app)
            await worker.begin()
            try:
                for n, statement in enumerate((b"insert into", b"WorkerLost")):
                    await send.enqueue(n)
                    await worker.claim()
                    await worker.run_one()
                    loss = proxy.drop_next_reply(statement)
                    with pytest.raises(RETRYABLE):
                        await worker.finish()
                    loss.wait(5)
                await worker.finish()
            finally:
                await worker.end()
        assert len(events.of(JobCompleted)) == 2
        assert events.of(JobClaimLost) == []
