"""`ctx.transaction()`: the handler's writes and "done" commit together, or neither does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.support.watching import Watched
from trueup import App, Context, JobFailed, LostClaim, Retry, TrueupError, injected
from trueup.events import JobClaimLost, JobCompleted, JobFailedAfterDone
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

WRITE = "insert into written (job) values (%s)"


@pytest.fixture
def table(database_url: str) -> str:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table written (job bigint not null)")
    return database_url


def written(url: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as connection:
        return [job for (job,) in connection.execute("select job from written")]


def state_of(url: str, job: int) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        rows: list[Any] = connection.execute(
            "select state from trueup.jobs where id = %(id)s union all select state from trueup.history where id = %(id)s",
            {"id": job},
        ).fetchall()
    ((state,),) = rows
    return str(state)


def declare(app: App, sync: bool, *, fail_inside: bool = False, fail_after: bool = False) -> Any:
    """A job that writes its id in its finishing transaction."""
    seen: dict[str, Any] = {}

    async def pay(ctx: Context = injected) -> None:
        async with ctx.transaction(result={"paid": True}) as tx:
            await tx.execute(WRITE, [ctx.job.id])
            seen["state inside"] = state_of(app.store.url, ctx.job.id)
            if fail_inside:
                raise ValueError("inside")
        seen["state after"] = state_of(app.store.url, ctx.job.id)
        if fail_after:
            raise ValueError("after")

    def pay_sync(ctx: Context = injected) -> None:
        with ctx.transaction(result={"paid": True}) as tx:
            tx.execute(WRITE, [ctx.job.id])
            seen["state inside"] = state_of(app.store.url, ctx.job.id)
            if fail_inside:
                raise ValueError("inside")
        seen["state after"] = state_of(app.store.url, ctx.job.id)
        if fail_after:
            raise ValueError("after")

    job = app.job(name="pay", retry=Retry(max_attempts=1))(pay_sync if sync else pay)
    return job, seen


both = pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])


@both
async def test_writes_and_done_commit_together(still: App, worker: ManualWorker, table: str, sync: bool) -> None:
    events = Watched(still)
    pay, seen = declare(still, sync)
    job = await pay.enqueue()
    await worker.run_pending()
    assert seen == {"state inside": "running", "state after": "done"}
    assert written(table) == [job]
    assert await job.result() == {"paid": True}
    assert len(events.of(JobCompleted)) == 1


@both
async def test_a_result_that_is_known_only_inside_is_asked_for_at_the_end(
    still: App, worker: ManualWorker, table: str, sync: bool
) -> None:
    paid: list[int] = []

    async def pay(ctx: Context = injected) -> None:
        async with ctx.transaction(result=lambda: {"paid": paid}) as tx:
            await tx.execute(WRITE, [ctx.job.id])
            paid.append(7)

    def pay_sync(ctx: Context = injected) -> None:
        with ctx.transaction(result=lambda: {"paid": paid}) as tx:
            tx.execute(WRITE, [ctx.job.id])
            paid.append(7)

    job = await still.job(name="pay")(pay_sync if sync else pay).enqueue()
    await worker.run_pending()
    assert await job.result() == {"paid": [7]}


@both
async def test_writes_are_rolled_back_when_no_result_can_be_had_at_the_end(
    still: App, worker: ManualWorker, table: str, sync: bool
) -> None:
    async def pay(ctx: Context = injected) -> None:
        async with ctx.transaction(result=lambda: 1 / 0) as tx:
            await tx.execute(WRITE, [ctx.job.id])

    def pay_sync(ctx: Context = injected) -> None:
        with ctx.transaction(result=lambda: 1 / 0) as tx:
            tx.execute(WRITE, [ctx.job.id])

    job = await still.job(name="pay", retry=Retry(max_attempts=1))(pay_sync if sync else pay).enqueue()
    await worker.run_pending()
    assert written(table) == []
    with pytest.raises(JobFailed, match="division by zero"):
        await job.result()


@both
async def test_an_error_inside_rolls_the_writes_back(still: App, worker: ManualWorker, table: str, sync: bool) -> None:
    pay, _ = declare(still, sync, fail_inside=True)
    job = await pay.enqueue()
    await worker.run_pending()
    assert written(table) == []
    with pytest.raises(JobFailed, match="inside"):
        await job.result()


@both
async def test_an_error_after_done_is_reported_and_the_job_stays_done(
    still: App, worker: ManualWorker, table: str, sync: bool
) -> None:
    events = Watched(still)
    pay, _ = declare(still, sync, fail_after=True)
    job = await pay.enqueue()
    await worker.run_pending()
    assert await job.result() == {"paid": True}
    assert written(table) == [job]
    assert [event.error for event in events.of(JobFailedAfterDone)] == ["after"]


@both
async def test_writes_are_rolled_back_when_the_job_was_rescued_meanwhile(
    still: App, worker: ManualWorker, table: str, clock: ManualClock, sync: bool
) -> None:
    events = Watched(still)
    raised: list[type[BaseException]] = []
    other = ManualWorker(still)
    await other.begin()

    async def pay(ctx: Context = injected) -> None:
        try:
            async with ctx.transaction() as tx:
                await tx.execute(WRITE, [ctx.job.id])
                if ctx.term == 1:
                    clock.advance(minutes=5)
                    await other.rescue()
        except LostClaim as error:
            raised.append(type(error))
            raise

    def pay_sync(ctx: Context = injected) -> None:
        with psycopg.connect(table, autocommit=True) as outsider:
            try:
                with ctx.transaction() as tx:
                    tx.execute(WRITE, [ctx.job.id])
                    if ctx.term == 1:
                        outsider.execute("update trueup.jobs set state = 'queued', holder = null")
            except LostClaim as error:
                raised.append(type(error))
                raise

    job = await still.job(name="pay")(pay_sync if sync else pay).enqueue()
    await worker.claim()
    await worker.run_one()
    await worker.finish()
    assert raised == [LostClaim]
    assert written(table) == []
    assert [event.term for event in events.of(JobClaimLost)] == [1]

    await other.worker.register()
    assert await other.run_pending() == 1
    assert written(table) == [job]
    await other.end()


@both
async def test_a_job_has_one_finishing_transaction(still: App, worker: ManualWorker, table: str, sync: bool) -> None:
    errors: list[BaseException] = []

    async def twice(ctx: Context = injected) -> None:
        async with ctx.transaction():
            pass
        try:
            ctx.transaction()
        except TrueupError as error:
            errors.append(error)

    def twice_sync(ctx: Context = injected) -> None:
        with ctx.transaction():
            pass
        try:
            ctx.transaction()
        except TrueupError as error:
            errors.append(error)

    await still.job(name="twice")(twice_sync if sync else twice).enqueue()
    await worker.run_pending()
    assert "already done" in str(errors[0])


async def _nested(ctx: Context = injected) -> None:
    async with ctx.transaction() as tx:
        await tx.execute(WRITE, [ctx.job.id])
        async with ctx.transaction() as inner:
            await inner.execute(WRITE, [ctx.job.id])


def _nested_in_a_thread(ctx: Context = injected) -> None:
    with ctx.transaction() as tx:
        tx.execute(WRITE, [ctx.job.id])
        with ctx.transaction() as inner:
            inner.execute(WRITE, [ctx.job.id])


async def _at_the_same_time(ctx: Context = injected) -> None:
    async def one() -> None:
        async with ctx.transaction() as tx:
            await tx.execute(WRITE, [ctx.job.id])
            await asyncio.sleep(10)

    running.append(asyncio.create_task(one()))
    await asyncio.sleep(0)
    await one()


async def _left_open(ctx: Context = injected) -> None:
    opened = asyncio.Event()

    async def one() -> None:
        async with ctx.transaction() as tx:
            await tx.execute(WRITE, [ctx.job.id])
            opened.set()
            await asyncio.sleep(10)

    running.append(asyncio.create_task(one()))
    await opened.wait()


running: list[asyncio.Task[None]] = []


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (_nested, "is open already"),
        (_nested_in_a_thread, "is open already"),
        (_at_the_same_time, "is open already"),
        (_left_open, "returned while"),
    ],
)
async def test_a_finishing_transaction_that_could_not_commit_fails_the_attempt(
    still: App, worker: ManualWorker, table: str, handler: Any, said: str
) -> None:
    """Otherwise the job would be done without the writes of one of the two."""
    job = await still.job(name="pay", retry=Retry(max_attempts=1))(handler).enqueue()
    await worker.run_pending()
    while running:
        running.pop().cancel()
    assert state_of(table, job.id) == "dead"
    assert written(table) == []
    with psycopg.connect(table) as connection:
        (errors,) = connection.execute("select errors::text from trueup.history").fetchone() or ("",)
    assert said in errors


async def test_after_a_finishing_transaction_that_failed_another_one_may_begin(
    still: App, worker: ManualWorker, table: str
) -> None:
    @still.job
    async def again(ctx: Context = injected) -> None:
        with suppress(ZeroDivisionError):
            async with ctx.transaction() as tx:
                await tx.execute(WRITE, [0])
                raise ZeroDivisionError
        async with ctx.transaction() as tx:
            await tx.execute(WRITE, [ctx.job.id])

    job = await again.enqueue()
    await worker.run_pending()
    assert written(table) == [job.id]


async def test_a_second_finishing_transaction_is_not_called_a_lost_lease(still: App, worker: ManualWorker) -> None:
    """Made before the first one and entered after it."""
    said: list[str] = []

    @still.job
    async def twice(ctx: Context = injected) -> None:
        one = ctx.transaction()
        async with one:
            pass
        try:
            async with one:
                pass
        except TrueupError as error:
            said.append(str(error))

    await twice.enqueue()
    await worker.run_pending()
    assert said == ["this job is already done; a job has only one finishing transaction"]


@both
async def test_progress_is_kept_and_refused_once_the_claim_is_lost(
    still: App, worker: ManualWorker, database_url: str, sync: bool
) -> None:
    outcome: list[str] = []

    async def slow(ctx: Context = injected) -> None:
        await ctx.progress(40, "page 4 of 10\x00")
        await steal(database_url)
        try:
            await ctx.progress(50)
        except LostClaim:
            outcome.append("lost")

    def slow_sync(ctx: Context = injected) -> None:
        ctx.progress_sync(40, "page 4 of 10\x00")
        with psycopg.connect(database_url, autocommit=True) as thief:
            thief.execute("update trueup.jobs set state = 'queued', holder = null")
        try:
            ctx.progress_sync(50)
        except LostClaim:
            outcome.append("lost")

    job = await still.job(name="slow")(slow_sync if sync else slow).enqueue()
    await worker.claim()
    await worker.run_one()
    view = await still.store.views.job(job)
    assert view is not None
    assert (view["progress"]["percent"], view["progress"]["note"]) == (40, "page 4 of 10\\0")
    assert outcome == ["lost"]


async def steal(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as thief:
        await thief.execute("update trueup.jobs set state = 'queued', holder = null")


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"], ids=["serialization failure", "deadlock"])
@pytest.mark.parametrize("where", ["in the handler", "at the commit"])
async def test_a_transaction_undone_by_the_database_is_retried_without_an_attempt(
    app: App, sqlstate: str, where: str
) -> None:
    tries: list[int] = []
    raising = f"do $$ begin raise exception 'chosen' using errcode = '{sqlstate}'; end $$"
    async with app.transaction() as tx:
        await tx.execute("create table effects (n int)")
        await tx.execute(
            f"create function refuse() returns trigger language plpgsql as "
            f"$$ begin raise exception 'chosen' using errcode = '{sqlstate}'; end $$"
        )
        await tx.execute(
            "create constraint trigger refuse after insert on effects deferrable initially deferred "
            "for each row when (new.n < 3) execute function refuse()"
        )

    @app.job(retry=Retry(max_attempts=1))
    async def effect(ctx: Context = injected) -> None:
        tries.append(ctx.attempt)
        async with ctx.transaction() as tx:
            if where == "at the commit":
                await tx.execute("insert into effects values (%s)", [len(tries)])
            elif len(tries) < 3:
                await tx.execute(raising)

    async with app.worker():
        await (await effect.enqueue()).result("15s")
    assert tries == [1, 1, 1]


async def test_a_transaction_that_keeps_being_undone_spends_attempts_after_a_minute(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    @still.job(retry=Retry(max_attempts=1))
    async def effect(ctx: Context = injected) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("do $$ begin raise exception 'again' using errcode = '40001'; end $$")

    job = await effect.enqueue()
    for _ in range(3):
        assert await worker.run_pending() == 1
        clock.advance(seconds=25)
    assert await worker.run_pending() == 1
    row = await still.store.views.job(int(job))
    assert row is not None
    assert (row["state"], row["reason"]) == ("dead", "out of attempts")


async def test_an_error_of_the_handlers_own_database_spends_an_attempt(app: App) -> None:
    @app.job(retry=Retry(max_attempts=1))
    async def effect(ctx: Context = injected) -> None:
        raise psycopg.errors.SerializationFailure("of another database")

    async with app.worker():
        with pytest.raises(JobFailed):
            await (await effect.enqueue()).result("15s")


ENDINGS = ["commit", "rollback", "commit and chain", "rollback; begin", "prepare transaction 'by hand'"]


@both
@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_handler_that_ends_the_transaction_itself_is_told_and_not_done(
    still: App, worker: ManualWorker, table: str, sync: bool, ending: str
) -> None:
    @still.job(name="after")
    async def after() -> None: ...

    async def pay(ctx: Context = injected) -> None:
        async with ctx.transaction() as tx:
            for statement in ending.split("; "):
                await tx.execute(statement)
            await tx.execute(WRITE, [ctx.job.id])

    def pay_sync(ctx: Context = injected) -> None:
        with ctx.transaction() as tx:
            for statement in ending.split("; "):
                tx.execute(statement)
            tx.execute(WRITE, [ctx.job.id])

    job = await still.job(name="pay", retry=Retry(max_attempts=1))(pay_sync if sync else pay).enqueue()
    await worker.run_pending()
    assert state_of(table, job.id) == "dead"
    with pytest.raises(
        JobFailed, match=r"pay \d+: the handler has ended trueup's transaction" if "prep" not in ending else "."
    ):
        await job.result()
    following = await after.enqueue()
    await worker.run_pending()
    assert state_of(table, following.id) == "done", "the connection is of use to the next one"


PROBE = """
select current_setting('TimeZone'), current_setting('DateStyle'), to_regclass('pg_temp.odd') is null,
       (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'),
       (select count(*) from pg_listening_channels()), (select count(*) from pg_cursors)
"""
OF_A_SESSION = {
    "a time zone": "set time zone 'Asia/Tokyo'",
    "a time zone, locally": "set local time zone 'Asia/Tokyo'",
    "a DateStyle": "set datestyle to German",
    "a lock": "select pg_advisory_lock(42)",
    "a channel": "listen odd",
    "a cursor": "declare odd cursor with hold for select 1",
    "a table": "create temp table odd (n int)",
}
OF_A_CONNECTION: dict[str, tuple[str, Any]] = {
    "rows of another shape": ("row_factory", dict_row),
    "raw cursors": ("cursor_factory", None),
    "named cursors": ("server_cursor_factory", psycopg.RawServerCursor),
    "prepared statements": ("prepare_threshold", 0),
}


@both
@pytest.mark.parametrize("what", [*OF_A_SESSION, *OF_A_CONNECTION])
async def test_what_a_handler_sets_on_its_connection_ends_with_its_transaction(
    still: App, worker: ManualWorker, sync: bool, what: str
) -> None:
    """The handler is done, not blamed for a COMMIT, and the next job finds the connection as the first one did."""
    found: list[Any] = []
    raw = psycopg.RawCursor if sync else psycopg.AsyncRawCursor

    def state(tx: Any, row: Any) -> Any:
        return row, [getattr(tx, name) for name, _ in OF_A_CONNECTION.values()], tx._notice_handlers[1:]

    def meddle(tx: Any) -> None:
        tx.add_notice_handler(print)
        if what in OF_A_CONNECTION:
            name, value = OF_A_CONNECTION[what]
            setattr(tx, name, raw if value is None else value)

    async def probe(ctx: Context = injected) -> None:
        async with ctx.transaction() as tx:
            found.append(state(tx, await (await tx.execute(PROBE)).fetchone()))

    async def odd(ctx: Context = injected) -> None:
        async with ctx.transaction() as tx:
            if what in OF_A_SESSION:
                await tx.execute(OF_A_SESSION[what])  # type: ignore[arg-type]
            meddle(tx)

    def probe_sync(ctx: Context = injected) -> None:
        with ctx.transaction() as tx:
            found.append(state(tx, tx.execute(PROBE).fetchone()))

    def odd_sync(ctx: Context = injected) -> None:
        with ctx.transaction() as tx:
            if what in OF_A_SESSION:
                tx.execute(OF_A_SESSION[what])  # type: ignore[arg-type]
            meddle(tx)

    retry = Retry(max_attempts=1)
    probing = still.job(name="probe", retry=retry)(probe_sync if sync else probe)
    meddling = still.job(name="odd", retry=retry)(odd_sync if sync else odd)
    for job in (probing, meddling, probing):
        handle = await job.enqueue()
        await worker.run_pending()
        await handle.result()
    assert found[0] == found[1]
