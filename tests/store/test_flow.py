"""What the dashboard's charts count, and that pages of ended jobs do not read the live ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from trueup import App
from trueup.store.flow import Flow
from trueup.store.store import Store

pytestmark = pytest.mark.asyncio

NOW = datetime(2026, 11, 16, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ENDED = """insert into trueup.history (id, kind, queue, lane, key, state, priority, run_at, args, attempt, max_attempts, crashes, term,
             enqueued_at, claimed_at, finished_at, errors)
           values (%s, 'k', 'q', 'q', '', %s, 0, %s, '{}', 1, 1, 0, 1, %s, %s, %s, '[]')"""


async def test_jobs_are_counted_in_the_spans_in_which_they_were_enqueued_and_ended(
    store: Store, database_url: str
) -> None:
    ended = [
        ("done", 10 * MINUTE, 1 * MINUTE),  # enqueued before the time that is shown
        ("done", 3 * MINUTE, 1 * MINUTE),
        ("dead", 1 * MINUTE, 1 * MINUTE),
        ("cancelled", 3 * MINUTE, 0 * MINUTE),
        ("done", 20 * MINUTE, 9 * MINUTE),  # and ended before it, too
    ]
    with psycopg.connect(database_url, autocommit=True) as connection:
        for place, (state, enqueued, finished) in enumerate(ended):
            due, end = NOW - enqueued, NOW - finished
            connection.execute(ENDED.encode(), (place, state, due, due, due + timedelta(seconds=place + 1), end))
        connection.execute(
            "insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts, enqueued_at)"
            " select 'k', 'q', 'q', %s, %s, '{}', 1, %s from generate_series(1, 2)",
            (NOW, NOW, NOW - 2 * MINUTE),
        )
    flow = Flow(store.pool, store.statements)
    spans = await flow.jobs(NOW, 5 * MINUTE, MINUTE)
    assert [span.enqueued for span in spans] == [0, 2, 2, 1, 0]
    assert [(span.done, span.dead, span.cancelled) for span in spans] == [
        *[(0, 0, 0)] * 3,
        (2, 1, 0),
        (0, 0, 1),
    ]
    assert [span.worst_waited_s for span in spans] == [0, 0, 0, 3, 4]


@pytest.mark.parametrize("view", ["views/jobs", "views/count", "views/window", "views/ids"])
@pytest.mark.parametrize(("states", "reads"), [(["dead"], False), (["queued"], True), (["dead", "running"], True)])
async def test_a_look_at_ended_jobs_does_not_read_the_live_ones(
    still: App, store: Store, database_url: str, view: str, states: list[str], reads: bool
) -> None:
    @still.job
    async def waits() -> None: ...

    await waits.enqueue()
    params = {
        **dict.fromkeys(("kind", "queue", "schedule", "arguments", "error_contains", "older_than_s", "now")),
        **dict.fromkeys(("min_attempts", "after_id", "down_to"), 0),
        **dict.fromkeys(("limit", "most", "window"), 10),
        "before": 2**63 - 1,
        "states": states,
    }
    with psycopg.connect(database_url, autocommit=True) as connection:
        plan = connection.execute(b"explain (analyze, costs off) " + store.statements[view], params).fetchall()
    scans = [line for (line,) in plan if " on jobs" in line]
    assert any("never executed" not in line for line in scans) == reads
