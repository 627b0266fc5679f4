"""Reading jobs from Python, async and sync, and acting on those that match."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pydantic import BaseModel

from trueup import App, ConfigError, Context, GiveUp, Handle, NotFound, Retry, injected
from trueup.errors import ResultMismatch
from trueup.jobs.records import JobCount, JobPage
from trueup.operate import jobs as operate_jobs
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

Call = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["async", "sync"])
def call(request: pytest.FixtureRequest) -> Call:
    """Calls a method of `app.jobs`, or its sync twin in a thread without an event loop."""

    async def call(app: App, name: str, *args: Any, **kwargs: Any) -> Any:
        if request.param == "async":
            return await getattr(app.jobs, name)(*args, **kwargs)
        return await asyncio.to_thread(getattr(app.jobs, f"{name}_sync"), *args, **kwargs)

    return call


async def test_every_operation_on_jobs_and_workers_has_a_sync_twin(still: App) -> None:
    for operations in (still.jobs, still.workers):
        names = [name for name in dir(type(operations)) if not name.startswith("_") and name != "blocking"]
        asynchronous = {
            name for name in names if asyncio.iscoroutinefunction(getattr(operations, name)) and name[-5:] != "_sync"
        }
        assert {name.removesuffix("_sync") for name in names if name.endswith("_sync")} == asynchronous


async def test_a_job_can_be_read_while_it_waits_while_it_runs_and_when_it_has_ended(
    still: App, worker: ManualWorker, call: Call
) -> None:
    @still.job(retry=Retry(max_attempts=1))
    async def move(box: str, *, ctx: Context = injected) -> dict[str, str]:
        await ctx.progress(40, "lifted")
        seen.append(await call(still, "get", ctx.job.id))
        return {"moved": box}

    seen: list[Any] = []
    handle = await move.enqueue("a")
    queued = await call(still, "get", handle)
    assert (queued.id, queued.kind, queued.state, queued.args, queued.attempt) == (
        handle,
        "move",
        "queued",
        {"box": "a"},
        0,
    )
    await worker.run_pending()
    assert (seen[0].state, seen[0].progress.percent, seen[0].progress.note) == ("running", 40, "lifted")
    done = await call(still, "get", handle)
    assert (done.state, done.result, done.finished_at is not None) == ("done", {"moved": "a"}, True)
    assert await call(still, "get", 10**9) is None


async def test_a_handle_tells_the_status_of_its_job(still: App, worker: ManualWorker) -> None:
    @still.job
    async def fails() -> None:
        raise GiveUp("no such box")

    handle = await fails.enqueue()
    assert (await handle.status()).state == "queued"
    await worker.run_pending()
    status = await asyncio.to_thread(handle.status_sync)
    assert (status.state, status.error and status.error.message) == ("dead", "no such box")
    assert status.error is not None
    assert "GiveUp" in (status.error.traceback or "")
    with pytest.raises(NotFound, match="does not exist"):
        await Handle[None](10**9, still).status()


@pytest.fixture
def crowd(still: App) -> Callable[[], Awaitable[dict[str, int]]]:
    """Jobs of two kinds in two queues: queued, dead with different errors, and done."""

    @still.job(retry=Retry(max_attempts=1))
    async def send(to: str, error: str = "") -> None:
        if error:
            raise ValueError(error)

    @still.job(queue="slow")
    async def report(tenant: str, options: dict[str, Any]) -> None: ...

    async def fill() -> dict[str, int]:
        ids = {name: await send.enqueue(name, error) for name, error in (("ok", ""), ("x", "Bad Address"), ("y", "no"))}
        worker = ManualWorker(still)
        await worker.begin()
        await worker.run_pending()
        await worker.end()
        ids["later"] = await send.using(delay="1h").enqueue("later")
        ids["acme"] = await report.enqueue("acme", {"pages": 3, "colour": True})
        ids["other"] = await report.enqueue("other", {"pages": 4})
        return {name: int(job_id) for name, job_id in ids.items()}

    return fill


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({}, ["other", "acme", "later", "y", "x", "ok"]),
        ({"state": "dead"}, ["y", "x"]),
        ({"state": ["queued", "done"]}, ["other", "acme", "later", "ok"]),
        ({"kind": "send", "state": "queued"}, ["later"]),
        ({"queue": "slow"}, ["other", "acme"]),
        ({"error_contains": "bad ADDRESS"}, ["x"]),
        ({"error_contains": "ValueError: n"}, ["y"]),
        ({"arguments": {"tenant": "acme"}}, ["acme"]),
        ({"arguments": {"options": {"pages": 3}}}, ["acme"]),
        ({"arguments": {"tenant": "acme"}, "kind": "send"}, []),
        ({"min_attempts": 1}, ["y", "x", "ok"]),
        ({"older_than": "1m"}, []),
        ({"schedule": "nightly"}, []),
    ],
)
async def test_conditions_combine_in_lists_and_counts(
    still: App, crowd: Any, conditions: dict[str, Any], found: list[str], call: Call
) -> None:
    ids = await crowd()
    page = await call(still, "list", **conditions)
    assert [job.id for job in page] == [ids[name] for name in found]
    assert page.next is None
    assert await call(still, "count", **conditions) == JobCount(len(found))


async def test_age_is_counted_from_enqueueing(still: App, crowd: Any, clock: ManualClock) -> None:
    await crowd()
    clock.advance(minutes=2)
    assert len(await still.jobs.list(older_than="1m")) == 6
    assert len(await still.jobs.list(older_than=timedelta(minutes=3))) == 0


@pytest.mark.parametrize("conditions", [{}, {"kind": "send"}])
async def test_pages_give_every_job_once(still: App, conditions: dict[str, Any], crowd: Any) -> None:
    await crowd()
    whole = [job.id for job in await still.jobs.list(**conditions)]
    seen: list[int] = []
    after = None
    for _ in range(10):
        page: JobPage = await still.jobs.list(limit=2, after=after, **conditions)
        seen += [job.id for job in page]
        after = page.next
        if after is None:
            break
    assert seen == whole


async def test_a_page_and_a_count_read_a_bounded_number_of_jobs_and_say_where_to_go_on(
    still: App, crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await crowd()
    monkeypatch.setattr(operate_jobs, "READ_AHEAD", 2)
    seen: list[int] = []
    after, pages = None, 0
    while pages < 10:
        page = await still.jobs.list(kind="send", after=after)
        seen, after, pages = [*seen, *(job.id for job in page)], page.next, pages + 1
        if after is None:
            break
    assert seen == [ids[name] for name in ("later", "y", "x", "ok")]
    assert pages > 2
    assert (await still.jobs.count(kind="send")).more, "what was not read may match"


async def test_counting_ends_beyond_its_bound(still: App, crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await crowd()
    monkeypatch.setattr(operate_jobs, "MAX_COUNT", 3)
    counted = await still.jobs.count()
    assert (counted, str(counted)) == (JobCount(3, more=True), "3+")
    assert [bool(each) for each in (JobCount(0), JobCount(2), JobCount(0, more=True))] == [False, True, True]


@pytest.mark.parametrize("wrong", [{"state": "sleeping"}, {"limit": 0}, {"limit": 10_001}])
async def test_conditions_that_cannot_be_are_refused(still: App, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        await still.jobs.list(**wrong)
    with pytest.raises(TypeError, match="colour"):
        await still.jobs.list(colour="red")  # type: ignore[call-arg]


async def test_retry_revives_the_dead_and_hurries_the_waiting(still: App, crowd: Any, call: Call) -> None:
    ids = await crowd()
    did = await call(still, "retry", [ids["x"], ids["later"], ids["ok"]])
    assert (did.revived, did.hurried) == ({ids["x"]}, {ids["later"]})
    with pytest.raises(NotFound):
        await call(still, "retry", [ids["ok"]])


async def test_many_are_changed_by_conditions(still: App, crowd: Any, call: Call) -> None:
    ids = await crowd()
    assert await call(still, "revive_all", error_contains="address") == 1
    assert await call(still, "cancel_all", arguments={"tenant": "acme"}) == 1
    assert await call(still, "discard_all", "send") == 1
    states = {name: (await still.jobs.get(job_id)) for name, job_id in ids.items()}
    assert {name: job and job.state for name, job in states.items()} == {
        "ok": "done",
        "x": "queued",
        "y": "cancelled",
        "later": "queued",
        "acme": "cancelled",
        "other": "queued",
    }


async def test_queues_and_workers_are_read(still: App, crowd: Any, worker: ManualWorker, clock: ManualClock) -> None:
    await crowd()
    clock.advance(seconds=5)
    depths = {(each.queue, each.kind): each for each in await still.jobs.queues()}
    assert depths["slow", "report"].due == 2
    assert depths["slow", "report"].oldest_due_s == 5
    assert (depths["default", "send"].queued, depths["default", "send"].due) == (1, 0)
    assert await asyncio.to_thread(still.jobs.queues_sync) == tuple(depths.values())
    workers = await still.workers.list()
    assert {(each.concurrency, each.queues, each.running, each.lease_left_s > 0) for each in workers} == {
        (10, ("default", "slow"), 0, True),
    }
    assert await asyncio.to_thread(still.workers.list_sync) == workers


@pytest.mark.slow
async def test_pages_and_counts_over_a_large_history_are_quick(app: App, database_url: str) -> None:
    """200,000 ended jobs of one kind, and a rare one among the oldest: no page reads them all."""
    with psycopg.connect(database_url) as connection:
        connection.execute(
            """insert into trueup.history (id, kind, queue, lane, key, state, priority, run_at, args, attempt, max_attempts,
                                           crashes, term, enqueued_at, finished_at, errors)
               select n, case when n = 5 then 'rare' else 'common' end, 'default', 'default', '', 'done', 0, now(),
                      '{"tenant": "acme"}', 1, 4, 0, 1, now(), now(), '[]' from generate_series(1, 200000) as n"""
        )
        connection.commit()
        connection.autocommit = True
        connection.execute("analyze trueup.history")

    async def seconds(work: Awaitable[Any]) -> tuple[float, Any]:
        began = asyncio.get_running_loop().time()
        result = await work
        return asyncio.get_running_loop().time() - began, result

    await app.jobs.list()
    everything, page = await seconds(app.jobs.list(state="done"))
    assert len(page) == 50
    rare, page = await seconds(app.jobs.list(kind="rare"))
    assert len(page) == 0
    assert page.next == 180_001, "READ_AHEAD jobs were read"
    counted, count = await seconds(app.jobs.count())
    assert (count.number, count.more) == (10_000, True)
    assert everything < 0.5
    assert counted < 0.5
    assert rare < 2


class Colour(Enum):
    RED = "red"


@dataclass
class Receipt:
    at: datetime
    total: Decimal


class Invoice(BaseModel, strict=True):
    number: int
    due: date
    lines: tuple[Receipt, ...] = ()


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
RETURNED: list[tuple[Any, Any]] = [
    (datetime, NOON),
    (date, NOON.date()),
    (timedelta, timedelta(minutes=5)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (bytes, b"\xff\x00"),
    (Colour, Colour.RED),
    (set[int], {1, 2}),
    (tuple[int, str], (1, "a")),
    (dict[int, date], {1: NOON.date()}),
    (Receipt, Receipt(NOON, Decimal("2.5"))),
    (Invoice, Invoice(number=1, due=NOON.date(), lines=(Receipt(NOON, Decimal(1)),))),
    (list[Invoice | None], [Invoice(number=1, due=NOON.date()), None]),
    (Receipt | None, None),
]


@pytest.mark.parametrize(("annotation", "value"), RETURNED, ids=[str(annotation) for annotation, _ in RETURNED])
async def test_a_result_comes_back_as_the_function_is_annotated(
    still: App, worker: ManualWorker, annotation: Any, value: Any
) -> None:
    async def give() -> Any:
        return value

    give.__annotations__["return"] = annotation
    handle = await still.job(give).enqueue()
    await worker.run_pending()
    result = await handle.result()
    assert (type(result), result) == (type(value), value)
    assert await asyncio.to_thread(handle.result_sync, "1s") == value
    assert await Handle[Any](int(handle), still).result() == value, "an id from elsewhere"


class Unknowable:
    """A type that JSON cannot be checked against."""


@pytest.mark.parametrize("annotation", [None, Any, Unknowable, "missing"])
async def test_a_result_without_a_usable_annotation_comes_back_as_json(
    still: App, worker: ManualWorker, annotation: Any
) -> None:
    async def give() -> Any:
        return {"at": NOON}

    if annotation == "missing":
        give.__annotations__.clear()
    else:
        give.__annotations__["return"] = annotation
    handle = await still.job(give).enqueue()
    await worker.run_pending()
    assert await handle.result() == {"at": "2026-01-02T12:00:00Z"}


async def test_a_result_that_does_not_fit_says_so(still: App, worker: ManualWorker) -> None:
    @still.job
    async def give() -> int:
        return "a lot"  # type: ignore[return-value]

    handle = await give.enqueue()
    await worker.run_pending()
    with pytest.raises(ResultMismatch, match="give: the stored result"):
        await handle.result()
    assert (await handle.status()).result == "a lot", "the stored value can be read all the same"
