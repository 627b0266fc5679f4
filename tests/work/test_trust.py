from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.support.watching import Watched
from trueup import App
from trueup.events import JobClaimLost
from trueup.leases.trust import Trust
from trueup.store.db import thread_connection
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker


def test_a_renewal_that_comes_before_anybody_saw_the_deadline_pass_counts() -> None:
    trust = Trust(timedelta(seconds=10), sent_at=0)
    trust.renewed(sent_at=8)
    assert trust.left(now=12) > 0


def test_a_deadline_that_was_seen_to_pass_stays_passed() -> None:
    trust = Trust(timedelta(seconds=10), sent_at=0)
    assert trust.left(now=9) < 0
    trust.renewed(sent_at=9)
    assert trust.left(now=9) < 0


LEASE = 30.0


@pytest.mark.asyncio
async def test_no_handler_starts_after_the_lease_is_no_longer_trusted(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    """As after a suspended machine wakes up with claimed jobs in hand."""
    events, ran = Watched(still), list[int]()

    @still.job
    async def send() -> None:
        ran.append(1)

    await send.enqueue()
    await worker.claim()
    clock.advance(seconds=LEASE)
    assert await worker.run_one() is not None
    assert ran == []
    assert [event.refused_by for event in events.of(JobClaimLost)] == ["local"]


@pytest.mark.asyncio
async def test_a_handler_that_starts_within_the_trust_window_runs(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    ran: list[int] = []

    @still.job
    async def send() -> None:
        ran.append(1)

    await send.enqueue()
    await worker.claim()
    clock.advance(seconds=LEASE / 2)
    await worker.run_one()
    assert ran == [1]


@pytest.mark.asyncio
async def test_nothing_is_written_after_the_lease_is_no_longer_trusted(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    """The database would still take it: nobody has rescued the job yet. The worker itself must not send it."""
    events = Watched(still)

    @still.job
    async def send() -> None: ...

    handle = await send.enqueue()
    await worker.claim()
    await worker.run_one()
    clock.advance(seconds=LEASE)
    await worker.finish()
    row = await still.store.views.job(int(handle))
    assert row is not None
    assert row["state"] == "running"
    assert [event.refused_by for event in events.of(JobClaimLost)] == ["local"]


@pytest.mark.asyncio
async def test_a_renewal_counts_from_before_it_was_sent(
    still: App, worker: ManualWorker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is slow: by then a part of the lease has passed already."""
    answered = thread_connection.fetch_limited_sync

    def slowly(*given: Any) -> Any:
        rows = answered(*given)
        clock.advance(seconds=LEASE / 2)
        return rows

    monkeypatch.setattr(thread_connection, "fetch_limited_sync", slowly)
    await asyncio.to_thread(worker.worker.renewer.renew_once)
    worker.worker.renewer.connection.close()
    assert worker.worker.trusted
    clock.advance(seconds=LEASE / 2)
    assert not worker.worker.trusted, "the lease ends now; the process must have given up before"
