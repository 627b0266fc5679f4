"""Outcomes are written in batches, each row judged alone; and not lost, nor written twice, by a bad network."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from tests.support.proxy import Proxy
from tests.support.watching import until
from tests.work.rows.field import Field
from trueup import App, Context, DuplicateJob, Retry, Stay, To
from trueup.events import (
    DatabaseLost,
    DatabaseRestored,
    RowChanged,
    RowClaimLost,
    RowConflict,
    RowQuarantined,
    RowRetried,
    ServiceFailed,
)
from trueup.store.rows.asks import Asks
from trueup.store.rows.compose import steering
from trueup.testing.clock import ManualClock
from trueup.work.rows.sweeper import Sweeper

pytestmark = pytest.mark.asyncio

EXPIRED = "update trueup.rows set due_at = now() - interval '1 s'"


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with Proxy.before(database_url) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def far(live: Field, proxy: Proxy) -> AsyncIterator[Field]:
    """An App behind the proxy; `live` looks at the same table from beside it."""
    app = App(proxy.url(live.app.store.url), statement_timeout="2s", connect_timeout="1s")
    far = Field(app)
    await app.open()
    yield far
    proxy.heal()
    await far.close()
    await app.close()


async def test_many_outcomes_are_written_by_few_statements(field: Field) -> None:
    await field.put(300)
    field.fix(lambda row: To("done"), batch=300, concurrency=300)
    sweeper = await field.gather()
    settle, calls = sweeper.rows.settle, []

    async def counted(*arguments: Any, **more: Any) -> Any:
        calls.append(len(arguments[1]))
        return await settle(*arguments, **more)

    sweeper.rows.settle = counted  # type: ignore[method-assign]
    assert (await field.sweep()).changed == 300
    assert sum(calls) == 300
    assert len(calls) < 100


async def test_somebody_who_was_there_first_wins(field: Field) -> None:
    async def handler(row: Any) -> Any:
        if row.id == 1:
            await field.do("update things set state = 'else' where id = 1")
        if row.id == 2:
            await field.do("update things set changed_at = now() where id = 2")
        if row.id == 3:
            await field.do("delete from things where id = 3")
        return To("done")

    await field.put(4)
    field.fix(handler)
    counts = await field.sweep()
    assert (counts.conflict, counts.changed) == (3, 1)
    assert await field.states() == {"else": 1, "new": 1, "done": 1}
    assert {event.key for event in field.events.of(RowConflict)} == {"1", "2", "3"}
    assert [await field.known(n) for n in (1, 2, 3, 4)] == [None] * 4


async def test_a_row_that_somebody_has_locked_is_written_when_they_let_go(live: Field) -> None:
    other = await psycopg.AsyncConnection.connect(live.app.store.url)
    locked = asyncio.Event()

    async def handler(row: Any) -> Any:
        if row.id == 1:
            await other.execute("select from things where id = 1 for update")
            locked.set()
        return To("done")

    await live.put(3)
    live.fix(handler)
    sweep = asyncio.create_task(live.sweep())
    await live.events.seen(RowChanged, count=2)
    async with asyncio.timeout(30):  # on a busy machine the two others may be written first
        await locked.wait()
    assert not sweep.done()
    await other.close()
    assert (await sweep).changed == 3


@pytest.mark.slow
async def test_rows_whose_trigger_takes_long_are_written_after_the_others(live: Field) -> None:
    await live.put(12)
    await live.do(
        "create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.7); return new; end $$;"
        "create trigger dawdle before update on things for each row when (old.id in (2, 3)) execute function dawdle()"
    )
    live.fix(lambda row: To("done"), concurrency=12)
    rows = (await live.gather()).rows
    rows.steer_together = steering(rows.statements, timedelta(seconds=1.2))
    assert (await live.sweep()).changed == 12
    assert {event.key for event in live.events.of(RowChanged)[-2:]} == {"2", "3"}
    assert not live.events.of(RowRetried)


async def test_a_row_that_stays_locked_is_lost_when_its_lease_has_passed(field: Field, clock: ManualClock) -> None:
    other = await psycopg.AsyncConnection.connect(field.app.store.url)

    async def handler(row: Any) -> Any:
        await other.execute("select from things where id = 1 for update")
        return To("done")

    await field.put()
    field.fix(handler)
    sweep = asyncio.create_task(field.sweep())
    await until(lambda: field.manual.worker.row_services.members and field.sweeper().finisher.pending == 1)
    clock.advance(seconds=26)
    assert (await sweep).lost == 1
    await other.close()
    assert await field.states() == {"new": 1}


async def test_a_job_that_cannot_be_enqueued_is_that_rows_failure(field: Field) -> None:
    @field.app.job
    async def tell(thing: int) -> None: ...

    await tell.using(unique="taken").enqueue(0)

    async def handler(row: Any) -> Any:
        if row.id == 2:
            return To("done", then=[tell.using(unique="taken", on_conflict="raise").call(row.id)])
        return To("done", then=[tell.call(row.id)])

    await field.put(4)
    field.fix(handler)
    counts = await field.sweep()
    assert (counts.changed, counts.retry) == (3, 1)
    (event,) = field.events.of(RowRetried)
    assert event.key == "2"
    assert event.error_type.endswith(DuplicateJob.__name__)
    assert await field.value("select count(*) from trueup.jobs") == 1 + 3


async def test_a_value_whose_text_raises_anything_is_that_rows_failure(field: Field) -> None:
    class Odd(dict[str, Any]):
        def __iter__(self) -> Any:
            raise ArithmeticError("odd")

        def items(self) -> Any:
            raise ArithmeticError("odd")

    async def handler(row: Any) -> Any:
        return To("done", note=Odd(a=1)) if row.id == 2 else To("done")

    await field.put(3)
    field.fix(handler)
    counts = await field.sweep()
    assert (counts.changed, counts.retry) == (2, 1)


async def test_a_trigger_that_takes_too_long_is_the_failure_of_its_row_alone(live: Field) -> None:
    await live.do(
        "create function slow() returns trigger language plpgsql as "
        "$$ begin if new.id = 2 then perform pg_sleep(30); end if; return new; end $$;"
        "create trigger slow before update on things for each row execute function slow()"
    )
    app = App(live.app.store.url, statement_timeout="1s")
    try:
        slow = Field(app)
        await app.open()
        await live.put(5)
        slow.fix(lambda row: To("done"), retry=Retry(first="1h"))
        await slow.manual.begin()
        counts = await slow.sweep()
        assert (counts.changed, counts.retry) == (4, 1)
        assert slow.events.of(RowRetried)[0].error_type.endswith("QueryCanceled")
    finally:
        await slow.close()
        await app.close()


async def test_a_failure_that_cannot_be_written_either_is_reported_and_holds_nobody_up(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    await field.put(3)
    field.fix(lambda row: To("done"))
    asked = Asks.of

    def refuses(asks: Asks, rows: Any, moves: Any, **more: Any) -> Any:
        if any(row.key == "2" for row in rows):
            raise RuntimeError("never")
        return asked(asks, rows, moves, **more)

    monkeypatch.setattr(Asks, "of", refuses)
    counts = await field.sweep()
    assert (counts.changed, counts.lost) == (2, 1)
    assert field.events.of(ServiceFailed)[0].error == "never"


def count_statements(sweeper: Sweeper) -> Counter[str]:
    sent: Counter[str] = Counter()

    def counted(name: str) -> None:
        send = getattr(sweeper.rows, name)

        async def send_and_count(*arguments: Any, **more: Any) -> Any:
            sent[name if len(arguments[1]) > 1 else "alone"] += 1
            return await send(*arguments, **more)

        setattr(sweeper.rows, name, send_and_count)

    counted("settle")
    counted("settle_apart")
    return sent


@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
async def test_refused_rows_are_found_by_few_statements_and_each_has_its_own_error(field: Field, share: float) -> None:
    """A batch with refused rows costs one more round trip, however many they are; their failures are written together."""
    count, every = 500, round(1 / share)
    await field.put(count)
    field.fix(lambda row: To("done", n=5_000 + row.id if row.id % every == 0 else 1), batch=count, concurrency=count)
    sent = count_statements(await field.gather())
    counts = await field.sweep()
    culprits = count // every
    assert (counts.changed, counts.retry) == (count - culprits, culprits)
    # Outcomes come in groups of up to 500, or fewer where the machine is slow; not in statements for single rows.
    assert sent.total() <= 25, sent
    for event in field.events.of(RowRetried):
        assert event.error == 'new row for relation "things" violates check constraint "small" (SQLSTATE 23514)'
    stored = await field.ask("select errors::text as said from trueup.rows")
    assert all(row["said"].count("violates") <= 2 for row in stored), "a row has the errors of others"


async def test_refusals_that_may_pass_are_repeated_together_on_the_same_connection(field: Field) -> None:
    """A lock, a timeout, a full disk, a serialisation failure: each row has its own error, and none a statement of its own."""
    states = ["40001", "40P01", "53100", "54000", "55P03", "57014", "58030", "P0001"]
    await field.put(480)
    await field.do(
        "create function refuse() returns trigger language plpgsql as $$ begin "
        f"if old.id % 6 = 0 then raise exception 'no' using errcode = (array{states})[old.id / 6 % 8 + 1]; end if; "
        "return new; end $$; create trigger refuse before update on things for each row execute function refuse()"
    )
    field.fix(lambda row: To("done"), batch=480, concurrency=480)
    sweeper = await field.gather()
    pid = await sweeper.rows.settling.fetch(b"select pg_backend_pid()")
    sent = count_statements(sweeper)
    counts = await field.sweep()
    assert (counts.changed, counts.retry) == (400, 80)
    assert sent["alone"] <= 20, sent
    assert await sweeper.rows.settling.fetch(b"select pg_backend_pid()") == pid
    assert field.events.of(DatabaseLost) == []
    for event in field.events.of(RowRetried):
        assert event.error.endswith(f"(SQLSTATE {states[int(event.key) // 6 % 8]})")


# -- a bad network --------------------------------------------------------------------------------------------------------


async def test_what_was_handled_while_the_database_was_away_is_written_when_it_is_back(
    far: Field, live: Field, proxy: Proxy
) -> None:
    async def handler(row: Any) -> Any:
        if row.id == 1:
            proxy.cut()
        return Stay(n=row.n + 1)

    await live.put(20)
    far.fix(
        handler, run_at_start=True, batch=5, concurrency=5, lease_for="4s"
    )  # of a claim whose answer was cut off, too
    async with far.app.worker():
        await far.events.seen(DatabaseLost)
        proxy.heal()
        await far.events.seen(RowChanged, count=20)
        await far.events.seen(DatabaseRestored)
    assert {row["n"] for row in await live.ask("select n from things")} == {1}
    assert far.events.of(RowClaimLost) == []


async def test_what_cannot_be_written_before_its_lease_has_passed_is_lost_and_done_again(
    far: Field, live: Field, proxy: Proxy
) -> None:
    runs: Counter[int] = Counter()

    async def handler(row: Any, *, ctx: Context) -> Any:
        runs[row.id] += 1
        if runs.total() == 1:
            proxy.cut()
        return To("done", n=row.n + 1)

    await live.put(3)
    far.fix(handler, run_at_start=True, lease_for="1s", every="200ms")
    async with far.app.worker():
        lost = await far.events.seen(RowClaimLost, count=1)
        proxy.heal()
        await far.events.seen(RowChanged, count=3)
    assert {event.refused_by for event in lost} <= {"local", "unknown"}
    assert {row["n"] for row in await live.ask("select n from things")} == {1}


class Alone:
    """Nothing but settlements commits, from when the handler says so until a claim is reported as lost."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._task = asyncio.create_task(self._hold())
        await self._begun.wait()

    async def _hold(self) -> None:
        async with self._field.sweeper().rows.claiming.use():  # type: ignore[union-attr]
            self._begun.set()
            await self._field.events.seen(RowClaimLost)


@pytest.mark.parametrize("claim", ["lease", "row_lock", "ctx.transaction"])
async def test_an_outcome_whose_commit_is_not_answered_is_not_written_twice(
    far: Field, live: Field, proxy: Proxy, claim: str
) -> None:
    alone = Alone(far)

    async def returns(row: Any) -> Any:
        await alone.begin()
        proxy.drop_next_reply(b"COMMIT")
        return Stay(n=row.n + 1)

    async def with_tx(row: Any, *, tx: Any) -> Any:
        await tx.execute("insert into log values (1, 'sent')")
        return await returns(row)

    async def with_ctx(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction(Stay(n=row.n + 1)) as tx:
            await tx.execute("insert into log values (1, 'sent')")
            await returns(row)

    handler = {"lease": returns, "row_lock": with_tx, "ctx.transaction": with_ctx}[claim]
    await live.put()
    far.fix(handler, claim="row_lock" if claim == "row_lock" else "lease")
    await far.manual.begin()
    counts = await far.sweep()
    assert (counts.lost, counts.settled) == (1, 1)
    assert [event.refused_by for event in far.events.of(RowClaimLost)] == ["unknown"]
    assert (await live.thing())["n"] == 1
    assert await live.value("select count(*) from log") == (0 if claim == "lease" else 1)
    assert (await far.sweep()).claimed == 0


async def test_a_sweep_goes_on_after_the_network_was_silent(far: Field, live: Field, proxy: Proxy) -> None:
    async def handler(row: Any) -> Any:
        if row.id == 3 and row.n == 0:
            proxy.black_hole()
        return To("done", n=1)

    await live.put(30)
    far.fix(handler, run_at_start=True, batch=3, lease_for="3s", every="500ms", retry=Retry(max_attempts=9))
    async with far.app.worker():
        await far.events.seen(DatabaseLost)
        proxy.heal()
        async with asyncio.timeout(30):
            while (await live.states()).get("done") != 30:
                await asyncio.sleep(0.1)
    assert far.events.of(RowQuarantined) == []


async def test_of_two_claims_of_a_row_in_one_process_only_the_later_one_counts(live: Field) -> None:
    """Their outcomes are decided at the same moment, and gathered; statements answer by the row's key, which is the same."""
    terms: list[int] = []
    both = asyncio.Event()

    async def handler(row: Any, *, ctx: Context) -> Any:
        terms.append(ctx.term)
        await both.wait()
        raise ValueError(ctx.term)

    await live.put()
    live.fix(handler, run_at_start=True, every="100ms", concurrency=4, retry=Retry(3, first="1h"))
    async with live.app.worker():
        await until(lambda: len(terms) == 1)
        await live.do(EXPIRED)
        await until(lambda: len(terms) == 2)
        both.set()
        await live.events.seen(RowRetried, count=1)
        await live.events.seen(RowClaimLost, count=1)
    assert [event.term for event in live.events.of(RowClaimLost)] == terms[:1]
    assert [event.error for event in live.events.of(RowRetried)] == [str(terms[1])]


async def test_renewing_the_later_claim_of_a_row_does_not_renew_the_earlier_one(live: Field) -> None:
    terms: list[int] = []
    done = asyncio.Event()

    async def handler(row: Any, *, ctx: Context) -> Any:
        terms.append(ctx.term)
        await done.wait()
        return To("done")

    await live.put()
    live.fix(handler, run_at_start=True, every="100ms", concurrency=4, lease_for="2s")
    async with live.app.worker():
        await until(lambda: len(terms) == 1)
        await live.do(EXPIRED)
        await until(lambda: len(terms) == 2)
        await live.events.seen(RowClaimLost, count=1)  # by a renewal: nothing has been written yet
        done.set()
        await live.events.seen(RowChanged, count=1)
    assert [event.term for event in live.events.of(RowClaimLost)] == terms[:1]
