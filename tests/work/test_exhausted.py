"""`exhausted=`: what happens in the transaction that buries a job, and that the job ends whatever becomes of it."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from tests.work.test_poison import Untouchable
from trueup import App, ConfigError, Context, Exhausted, GiveUp, JobFailed, Retry, injected
from trueup.errors import LostClaim
from trueup.events import Event, JobBuried, JobClaimLost, JobDeferred, JobRescued
from trueup.jobs.exhausted import TRIES
from trueup.store.db.connect import limit
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker
from trueup.texts import describe, type_name

pytestmark = pytest.mark.asyncio

LEASE = 30
ONCE = Retry(max_attempts=1)


def query(url: str, statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), params)
        return cursor.fetchall() if cursor.description else []


@pytest_asyncio.fixture(autouse=True)
async def book(database_url: str) -> str:
    query(
        database_url,
        "create table book (job bigint, note text unique deferrable initially deferred check (note <> 'refused'))",
    )
    return database_url


def notes(url: str) -> list[str]:
    return [row[0] for row in query(url, "select note from book order by note")]


async def view(app: App, job_id: int) -> dict[str, Any]:
    found = await app.store.views.job(job_id)
    assert found is not None
    return found


def short(name: str) -> str:
    return name.rpartition(".")[2]


def said(app: App, *kinds: type[Event]) -> list[Any]:
    heard: list[Any] = []
    app.events.subscribe(heard.append, *kinds)
    return heard


async def note(dead: Exhausted) -> None:
    await dead.tx.execute("insert into book values (%s, %s)", [dead.job.id, f"{dead.arguments['name']}: {dead.reason}"])


def note_sync(dead: Exhausted) -> None:
    dead.tx.execute("insert into book values (%s, %s)", [dead.job.id, f"{dead.arguments['name']}: {dead.reason}"])


async def fail() -> None:
    raise ValueError("no")


async def give_up() -> None:
    raise GiveUp("hopeless")


async def too_long() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("exhausted", [note, note_sync])
@pytest.mark.parametrize(
    ("handler", "retry", "reason", "error"),
    [
        (fail, ONCE, "out of attempts", "ValueError"),
        (fail, Retry(give_up_on=(ValueError,)), "not an error worth retrying", "ValueError"),
        (give_up, Retry(max_attempts=9), "hopeless", "GiveUp"),
        (too_long, ONCE, "out of attempts", "JobTimeout"),
    ],
)
async def test_it_writes_and_enqueues_in_the_transaction_that_buries(
    still: App,
    worker: ManualWorker,
    handler: Callable[[], Awaitable[None]],
    retry: Retry,
    reason: str,
    error: str,
    exhausted: Callable[[Exhausted], Any],
) -> None:
    @still.job
    async def follow(name: str) -> None: ...

    def both(dead: Exhausted) -> Any:
        exhausted(dead)
        return [follow.using(unique="the same").call(dead.arguments["name"])]

    async def both_async(dead: Exhausted) -> Any:
        await exhausted(dead)
        assert short(dead.error_type) == error
        return [follow.using(unique="the same").call(dead.arguments["name"])]

    @still.job(retry=retry, timeout="100ms", exhausted=both_async if exhausted is note else both)
    async def doomed(name: str = "Ann") -> None:
        await handler()

    buried = said(still, JobBuried)
    job = await doomed.enqueue()
    assert await worker.run_pending() == 2
    row = await view(still, job)
    assert (row["state"], row["attempt"], row["reason"]) == ("dead", 1, reason)
    assert [short(each["type"]) for each in row["errors"]] == [error]
    assert [(each.job_id, each.reason, short(each.error_type)) for each in buried] == [(job, reason, error)]
    assert notes(still.store.url) == [f"Ann: {reason}"]
    one_transaction = query(
        still.store.url, "select h.xmin = b.xmin from trueup.history h join book b on b.job = h.id where h.id = %s", job
    )
    assert one_transaction == [(True,)]


@pytest.mark.parametrize("number", [5, 123456789012345678901234567891])
async def test_arguments_that_no_longer_fit_come_as_they_are_stored(
    still: App, worker: ManualWorker, number: int
) -> None:
    @still.job(exhausted=note)
    async def doomed(name: str) -> None: ...

    job = await doomed.enqueue("Ann")
    query(still.store.url, f"""update trueup.jobs set args = '{{"name": {number}}}'""")
    await worker.run_pending()
    assert (await view(still, job))["reason"] == "its arguments do not fit the job"
    assert notes(still.store.url) == [f"{number}: its arguments do not fit the job"]


async def raises(dead: Exhausted) -> None:
    await note(dead)
    raise KeyError("boom")


async def cancels_itself(dead: Exhausted) -> None:
    await note(dead)
    raise asyncio.CancelledError


def exits(dead: Exhausted) -> None:
    note_sync(dead)
    raise SystemExit(3)


async def is_refused(dead: Exhausted) -> None:
    await note(dead)
    await dead.tx.execute("insert into book values (1, 'refused')")


async def is_refused_at_the_commit(dead: Exhausted) -> None:
    await note(dead)
    await note(dead)


async def swallows_a_refusal(dead: Exhausted) -> None:
    await note(dead)
    with suppress(psycopg.Error):
        await dead.tx.execute("insert into book values (1, 'refused')")


def ends_the_transaction(dead: Exhausted) -> None:
    dead.tx.execute("rollback")
    dead.tx.execute("begin")


async def returns_something_else(dead: Exhausted) -> Any:
    await note(dead)
    return ["not a job"]


async def hangs(dead: Exhausted) -> None:
    await note(dead)
    await asyncio.sleep(60)


def hangs_in_a_thread(dead: Exhausted) -> None:
    note_sync(dead)
    threading.Event().wait(1.5)  # longer than it may, and then it would commit


def hangs_in_a_statement(dead: Exhausted) -> None:
    note_sync(dead)
    dead.tx.execute("select pg_sleep(60)")


async def raises_what_raises_again(dead: Exhausted) -> None:
    await note(dead)
    raise Untouchable


async def loses_another_claim(dead: Exhausted) -> None:
    await note(dead)
    raise LostClaim("of another job")


BROKEN = {
    raises: "KeyError",
    raises_what_raises_again: "UnreadableError",
    loses_another_claim: "LostClaim",
    cancels_itself: "CancelledError",
    exits: "SystemExit",
    is_refused: "CheckViolation",
    is_refused_at_the_commit: "UniqueViolation",
    swallows_a_refusal: "InFailedSqlTransaction",
    ends_the_transaction: "TrueupError",
    returns_something_else: "TypeError",
    hangs: "JobTimeout",
    hangs_in_a_thread: "JobTimeout",
    hangs_in_a_statement: "QueryCanceled",
}


@pytest.mark.parametrize("exhausted", BROKEN, ids=lambda function: function.__name__)
async def test_one_that_fails_writes_nothing_and_is_called_again_without_the_handler(
    still: App,
    worker: ManualWorker,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    exhausted: Callable[[Exhausted], Any],
) -> None:
    if exhausted.__name__.startswith("hangs"):
        monkeypatch.setattr("trueup.work.jobs.exhausting.TIMEOUT", timedelta(seconds=1))
        monkeypatch.setattr("trueup.work.jobs.exhausting.LIMIT", limit(timedelta(seconds=0.2)))
    ran: list[int] = []
    broken = True

    def sync(dead: Exhausted) -> Any:
        return (exhausted if broken else note_sync)(dead)

    async def on_loop(dead: Exhausted) -> Any:
        return await (exhausted if broken else note)(dead)

    @still.job(retry=ONCE, exhausted=on_loop if asyncio.iscoroutinefunction(exhausted) else sync)
    async def doomed(name: str, ctx: Context = injected) -> None:
        ran.append(ctx.attempt)
        raise ValueError("the handler's own")

    deferred, buried = said(still, JobDeferred), said(still, JobBuried)
    job = await doomed.enqueue("Ann")
    await worker.run_pending()
    row = await view(still, job)
    assert row["state"] == "queued"
    assert [short(each["type"]) for each in row["errors"]] == ["ValueError", BROKEN[exhausted]]
    assert "in exhausted=" in row["errors"][1]["message"]
    assert [(each.reason, each.tries, short(each.error_type)) for each in deferred] == [
        ("out of attempts", 1, BROKEN[exhausted])
    ]
    assert (notes(still.store.url), buried) == ([], [])
    broken = False
    clock.advance(seconds=2)
    await worker.run_pending()
    row = await view(still, job)
    assert (row["state"], row["attempt"], row["reason"]) == ("dead", 1, "out of attempts")
    assert notes(still.store.url) == ["Ann: out of attempts"]
    assert [(each.reason, each.error_type, each.error) for each in buried] == [
        ("out of attempts", "ValueError", "the handler's own")
    ]
    assert ran == [1]


ASK_TWICE = """do $$ begin
  if nextval('public.asked') <= 2 then raise 'once more' using errcode = '{}'; end if;
end $$"""


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
@pytest.mark.parametrize("exhausted", [note, note_sync])
async def test_a_transaction_that_the_server_asks_to_repeat_is_repeated_at_once(
    still: App, worker: ManualWorker, exhausted: Callable[[Exhausted], Any], sqlstate: str
) -> None:
    query(still.store.url, "create sequence asked")

    def sync(dead: Exhausted) -> None:
        note_sync(dead)
        dead.tx.execute(ASK_TWICE.format(sqlstate))

    async def on_loop(dead: Exhausted) -> None:
        await note(dead)
        await dead.tx.execute(ASK_TWICE.format(sqlstate).encode())

    @still.job(retry=ONCE, exhausted=on_loop if exhausted is note else sync)
    async def doomed(name: str) -> None:
        raise ValueError("the handler's own")

    deferred = said(still, JobDeferred)
    job = await doomed.enqueue("Ann")
    await worker.run_pending()
    row = await view(still, job)
    assert (row["state"], row["reason"]) == ("dead", "out of attempts")
    assert [short(each["type"]) for each in row["errors"]] == ["ValueError"]
    assert (notes(still.store.url), deferred) == (["Ann: out of attempts"], [])


async def run_hours(worker: ManualWorker, clock: ManualClock) -> None:
    for _ in range(2 * TRIES.max_attempts):
        await worker.run_pending()
        clock.advance(minutes=6)


@pytest.mark.parametrize("error", [KeyError("boom"), GiveUp("boom")])
async def test_one_that_keeps_failing_lets_the_job_end_with_both_reasons(
    still: App, worker: ManualWorker, clock: ManualClock, error: Exception
) -> None:
    called = 0

    async def broken(dead: Exhausted) -> None:
        nonlocal called
        called += 1
        raise error

    @still.job(retry=ONCE, exhausted=broken)
    async def doomed() -> None:
        raise ValueError("the handler's own")

    buried = said(still, JobBuried)
    job = await doomed.enqueue()
    await run_hours(worker, clock)
    row = await view(still, job)
    assert (row["state"], row["reason"]) == (
        "dead",
        f"out of attempts, and exhausted= failed: {type_name(error)}: {describe(error)}",
    )
    assert called == (1 if isinstance(error, GiveUp) else TRIES.max_attempts)
    assert row["errors"][0]["message"] == "the handler's own"
    assert row["errors"][-1]["message"].startswith("in exhausted=: ")
    (event,) = buried
    assert event.error_type == "ValueError"
    assert "boom" in event.reason


@pytest.mark.parametrize("attempts_left", [True, False])
async def test_a_job_of_a_process_that_died_at_the_last_attempt_waits_for_its_kind(
    still: App, database_url: str, clock: ManualClock, attempts_left: bool
) -> None:
    ran: list[int] = []

    @still.job(retry=Retry(max_attempts=2 if attempts_left else 1), exhausted=note)
    async def doomed(name: str, ctx: Context = injected) -> None:
        ran.append(ctx.attempt)

    stranger = App(database_url, clock=clock)
    victim, other, knows = ManualWorker(still), ManualWorker(stranger), ManualWorker(still)
    try:
        await victim.begin()
        job = await doomed.enqueue("Ann")
        (claimed,) = await victim.claim()
        clock.advance(seconds=LEASE)
        await other.begin()
        rescued = said(stranger, JobRescued)
        await other.rescue()
        assert [(each.state, each.exhausting) for each in rescued] == [("queued", not attempts_left)]
        assert await other.run_pending() == 0
        await knows.begin()
        assert await knows.run_pending() == 1
        row = await view(still, job)
        if attempts_left:
            assert (row["state"], ran, notes(database_url)) == ("done", [2], [])
        else:
            assert (row["state"], row["attempt"]) == ("dead", 1)
            assert (ran, notes(database_url)) == ([], ["Ann: its worker died at the last attempt"])
            assert [short(each["type"]) for each in row["errors"]] == ["WorkerLost"]
            assert row["term"] > claimed.term
    finally:
        for each in (victim, other, knows):
            await each.end()
        await stranger.close()


async def test_workers_that_keep_dying_in_it_let_the_job_end(still: App, clock: ManualClock) -> None:
    @still.job(retry=ONCE, exhausted=note)
    async def doomed(name: str) -> None: ...

    job = await doomed.enqueue("Ann")
    died = 0
    while (await view(still, job))["state"] != "dead":
        worker = ManualWorker(still)
        await worker.begin()
        if claimed := await worker.claim():
            died += 1
            assert (claimed[0].attempt, died <= TRIES.max_attempts + 1) == (1, True)
        clock.advance(minutes=2)
        await worker.rescue()
        await worker.end()
    assert died == TRIES.max_attempts + 1
    row = await view(still, job)
    assert (row["state"], row["reason"]) == (
        "dead",
        "its worker died at the last attempt, and exhausted= failed: its worker died",
    )


async def test_a_holder_that_lost_its_lease_writes_nothing(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    async def slow(dead: Exhausted) -> None:
        await note(dead)
        if dead.job.exhausting is None:
            clock.advance(seconds=LEASE)

    @still.job(retry=ONCE, exhausted=slow)
    async def doomed(name: str) -> None:
        raise ValueError("no")

    lost, buried = said(still, JobClaimLost), said(still, JobBuried)
    job = await doomed.enqueue("Ann")
    await worker.claim()
    await worker.run_one()
    await worker.finish()
    assert ([each.job_id for each in lost], buried, notes(still.store.url)) == ([job], [], [])
    other = ManualWorker(still)
    await other.begin()
    await other.rescue()
    await other.run_pending()
    await other.end()
    assert notes(still.store.url) == ["Ann: its worker died at the last attempt"]
    assert (await view(still, job))["state"] == "dead"


async def test_a_worker_that_stops_leaves_the_call_to_another_one(app: App) -> None:
    entered, ran = asyncio.Event(), 0

    async def slow(dead: Exhausted) -> None:
        await note(dead)
        if dead.job.exhausting is None:
            entered.set()
            await asyncio.sleep(60)

    @app.job(retry=ONCE, exhausted=slow)
    async def doomed(name: str) -> None:
        nonlocal ran
        ran += 1
        raise ValueError("no")

    worker = app.worker()
    await worker.start()
    job = await doomed.enqueue("Ann")
    await asyncio.wait_for(entered.wait(), 20)
    await worker.stop(timedelta(0))
    assert ((await view(app, job))["state"], notes(app.store.url)) == ("queued", [])
    async with app.worker():
        with pytest.raises(JobFailed, match="out of attempts"):
            await job.result(timeout="20s")
    assert (notes(app.store.url), ran) == (["Ann: out of attempts"], 1)


async def test_a_job_that_is_asked_to_stop_is_cancelled_without_it(still: App, worker: ManualWorker) -> None:
    @still.job(retry=ONCE, exhausted=raises)
    async def doomed(name: str) -> None:
        raise ValueError("no")

    job = await doomed.enqueue("Ann")
    await worker.run_pending()
    await still.jobs.cancel([job])
    assert ((await view(still, job))["state"], notes(still.store.url)) == ("cancelled", [])


async def test_what_is_not_a_function_is_refused(still: App) -> None:
    with pytest.raises(ConfigError, match="exhausted= takes a function"):
        still.job(exhausted="DEAD")(fail)  # type: ignore[call-overload]


DYING = """
import asyncio, os
from trueup import App, Exhausted, Retry

app = App(os.environ["URL"])

async def note(dead: Exhausted) -> None:
    await dead.tx.execute("insert into book values (%s, %s)", [dead.job.id, "noted: " + dead.reason])

@app.job(retry=Retry(max_attempts=1), exhausted=note)
async def doomed() -> None:
    raise ValueError("no")

if __name__ == "__main__":
    asyncio.run(app.worker().run())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ("before_handler", "its worker died at the last attempt"),
        ("in_exhausted", "its worker died at the last attempt"),
        ("after_exhausted", "out of attempts"),
    ],
)
async def test_a_process_killed_anywhere_leaves_its_writes_there_once(
    app: App, database_url: str, tmp_path: Path, point: str, reason: str
) -> None:
    async def note_it(dead: Exhausted) -> None:
        await dead.tx.execute("insert into book values (%s, %s)", [dead.job.id, "noted: " + dead.reason])

    job = await app.job(name="doomed", retry=ONCE, exhausted=note_it)(fail).enqueue()
    program = tmp_path / "dying.py"
    program.write_text(DYING)
    env = {"URL": database_url, "PYTHONPATH": ":".join(sys.path), "TRUEUP_FAULT": f"{point}:kill"}
    process = await asyncio.create_subprocess_exec(sys.executable, program, env=env)
    try:
        assert await asyncio.wait_for(process.wait(), 40) == -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert len(notes(database_url)) == (point == "after_exhausted")
    query(database_url, "update trueup.workers set lease_until = now()")
    async with app.worker():
        with pytest.raises(JobFailed, match=reason):
            await job.result(timeout="40s")
    assert notes(database_url) == [f"noted: {reason}"]
