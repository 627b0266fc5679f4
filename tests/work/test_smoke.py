import pytest

from trueup import App
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio


async def test_a_job_runs_and_its_result_is_kept(still: App, worker: ManualWorker) -> None:
    @still.job
    async def add(a: int, b: int = 2) -> int:
        return a + b

    job = await add.enqueue(1)
    assert await worker.run_pending() == 1
    assert await job.result() == 3
