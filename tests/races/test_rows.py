"""Many at once on the rows of one table: nobody gets what another has, nobody waits for another for ever."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest
import pytest_asyncio

from tests.store.rows_desk import RowsDesk, again, claimed, desk_on, failure, sweep
from tests.support.interleave import OneConnection, Side, interleave, overlap
from tests.support.matrix import count
from trueup.clock import elapsed
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Change, Release, Remove, Rest, RetryAfter
from trueup.reconcile.outcome import Delete, Stay, To
from trueup.store.rows.rows import Rows
from trueup.store.store import Store
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

T = TypeVar("T")

HOUR = timedelta(hours=1)
MANY = count(300, proof=2_000)  # rows
DONE = Change(To("done"), None)
REST = Rest(HOUR, succeeded=True)
TABLE = """
create table t (id int primary key, state text not null, changed_at timestamptz not null, touched int not null default 0,
                owner text, until timestamptz)
"""
PLAIN: dict[str, Any] = {"spec": {"changed_at": "changed_at"}}
KINDS: list[dict[str, Any]] = [
    PLAIN,
    {**PLAIN, "claimed_as": "working"},
    {"spec": {"changed_at": "changed_at", "lease_columns": ("owner", "until")}},
]


@pytest_asyncio.fixture
async def desk(store: Store) -> AsyncIterator[RowsDesk]:
    async with desk_on(store) as desk:
        await desk.run(TABLE)
        await desk.run("create index on t (state, changed_at, id)")
        yield desk


async def fill(desk: RowsDesk, rows: int) -> None:
    await desk.run("insert into t select n, 'open', '2026-06-01Z' from generate_series(1, %s) as n", rows)


async def deadlocks(desk: RowsDesk) -> int:
    await desk.run("select pg_stat_force_next_flush()")
    found = await desk.scalar("select deadlocks from pg_stat_database where datname = current_database()")
    return int(found)


def on(desk: RowsDesk, side: Side, **options: Any) -> Any:
    return desk.rows("open", database=OneConnection(side.connection), **options)


# -- two, in an order that is decided --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", KINDS, ids=["plain", "claimed_as", "own columns"])
async def test_two_claims_at_once_share_nothing_and_do_not_wait(
    desk: RowsDesk, store: Store, options: dict[str, Any]
) -> None:
    await fill(desk, 20)

    async def claim(side: Side) -> list[ClaimedRow]:
        return await claimed(await on(desk, side, **options), most=10)

    first, second = await overlap(store, hold=claim, then=claim)
    assert len(first) == 10
    assert {row.key for row in first}.isdisjoint(row.key for row in second.value)


async def test_two_claims_of_rows_whose_time_has_come_again_share_nothing(desk: RowsDesk, store: Store) -> None:
    await fill(desk, 20)
    await desk.plant("select n::text from generate_series(1, 20) as n", due_in="-1 h")

    async def claim(side: Side) -> list[ClaimedRow]:
        return await again(await on(desk, side, **PLAIN), most=10)

    first, second = await overlap(store, hold=claim, then=claim)
    assert len(first) == 10
    assert len(second.value) == 10
    assert {row.key for row in first}.isdisjoint(row.key for row in second.value)


async def test_a_claim_passes_over_what_is_being_settled(desk: RowsDesk, store: Store) -> None:
    await fill(desk, 2)
    rows = await desk.rows("open", **PLAIN)
    holder = uuid4()
    (row,) = await claimed(rows, holder, most=1)

    async def settle(side: Side) -> Any:
        return await (await on(desk, side, **PLAIN)).settle(holder, [row], [Change(Stay(), HOUR)])

    async def claim(side: Side) -> list[ClaimedRow]:
        return await claimed(await on(desk, side, **PLAIN))

    done, more = await overlap(store, hold=settle, then=claim)
    assert done == {"1": "changed"}
    assert [each.key for each in more.value] == ["2"]


async def test_a_settlement_that_waited_out_another_of_the_same_claim_is_lost(desk: RowsDesk, store: Store) -> None:
    await fill(desk, 1)
    holder = uuid4()
    (row,) = await claimed(await desk.rows("open", **PLAIN), holder)

    async def rest(side: Side) -> Any:
        return await (await on(desk, side, **PLAIN)).settle(holder, [row], [REST])

    first, second = await interleave(store, hold=rest, then=rest)
    assert first == {"1": "changed"}
    assert second.value == {}


async def test_a_renewal_does_not_wait_for_what_is_being_settled(desk: RowsDesk, store: Store) -> None:
    await fill(desk, 2)
    holder = uuid4()
    taken = await claimed(await desk.rows("open", **PLAIN), holder)

    async def settle(side: Side) -> Any:
        return await (await on(desk, side, **PLAIN)).settle(holder, taken[:1], [REST])

    async def renew(side: Side) -> dict[str, str]:
        query, params = (await on(desk, side, **PLAIN)).renewal(holder, taken)
        return {row[0]: row[-1] for row in await OneConnection(side.connection).fetch(query, params)}

    _, renewed = await overlap(store, hold=settle, then=renew)
    assert renewed.value == {"1": "busy", "2": "renewed"}


async def test_a_claim_of_dead_processes_rows_skips_one_that_is_being_renewed(desk: RowsDesk, store: Store) -> None:
    await fill(desk, 1)
    await desk.plant("select '1'", due_in="-1 h")
    await desk.run("update trueup.rows set state = 'held', holder = %s", uuid4())

    async def renew(side: Side) -> None:
        await side.connection.execute("update trueup.rows set due_at = due_at + interval '2 h'")

    async def claim(side: Side) -> list[ClaimedRow]:
        return await again(await on(desk, side, **PLAIN))

    _, taken = await overlap(store, hold=renew, then=claim)
    assert taken.value == []
    assert await again(await desk.rows("open", **PLAIN)) == []


# -- many, in any order -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS, ids=["plain", "claimed_as", "own columns"])
async def test_eight_that_sweep_at_once_share_the_rows_without_a_duplicate(
    desk: RowsDesk, options: dict[str, Any]
) -> None:
    await fill(desk, MANY)

    async def run() -> list[tuple[str, int]]:
        rows = await desk.rows("open", **options)
        batches = await sweep(rows, 13)
        assert max(len(batch.rows) for batch in batches) <= 13
        return [(row.key, row.term) for batch in batches for row in batch.rows]

    shares = await asyncio.gather(*(run() for _ in range(8)))
    # A sweep passes over what another one has locked at that moment, so a last one picks up what all have passed over.
    shares.append(await run())
    counts = Counter(key for share in shares for key, _ in share)
    assert len(counts) == MANY
    assert set(counts.values()) == {1}
    assert len({term for share in shares for _, term in share}) == MANY
    assert await desk.scalar("select count(*) from trueup.rows where state = 'held' and attempt = 1") == MANY


class Owners:
    """Who works on which row right now, as their processes see it."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.terms: dict[str, int] = {}
        self.claims = 0

    def take(self, rows: list[ClaimedRow]) -> None:
        for row in rows:
            assert row.key not in self.now, f"row {row.key} is worked on twice"
            assert self.terms.get(row.key, 0) < row.term, f"the term of row {row.key} did not grow"
            self.now[row.key] = self.terms[row.key] = row.term
        self.claims += len(rows)

    def leave(self, rows: list[ClaimedRow]) -> None:
        for row in rows:
            del self.now[row.key]


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS, ids=["plain", "claimed_as", "own columns"])
async def test_claims_outcomes_renewals_and_users_writes_do_not_block_one_another(
    desk: RowsDesk, store: Store, clock: ManualClock, options: dict[str, Any]
) -> None:
    await fill(desk, 60)
    seed = random.randrange(10**6)
    print("seed", seed)
    owners, until = Owners(), elapsed() + count(1, proof=4)

    def goes_on() -> bool:
        """On a machine that is busy with other tests, until enough was done."""
        return elapsed() < until or (owners.claims <= 200 and elapsed() < until + 30)

    moves = [
        Change(Stay(touched=1), timedelta()),
        Change(To("open"), timedelta()),
        Rest(timedelta(), succeeded=True),
    ]
    moves += [RetryAfter(timedelta(), failure(), spend=False), Release(), Change(Stay(), timedelta())]

    async def renew(rows: Rows, taken: list[ClaimedRow]) -> None:
        """As the keeper does: on a connection of its own, while the same rows are being settled."""
        query, params = rows.renewal(taken[0].holder, taken)
        async with await psycopg.AsyncConnection.connect(store.url, autocommit=True) as connection:
            for key, seen, answer in await (await connection.execute(query, params)).fetchall():
                assert answer in ("renewed", "busy")
                for row in taken:
                    if row.key == key and seen is not None:
                        row.seen = seen

    async def work(n: int) -> None:
        rng, holder, rows = random.Random(seed + n), uuid4(), await desk.rows("open", **options)
        while goes_on():
            most = rng.randint(1, 20)
            clock.advance(microseconds=1)  # rows that were given back are due a moment later
            if rng.random() < 0.5:
                taken = await claimed(rows, holder, most)
            else:
                taken = await again(rows, holder, most)
            owners.take(taken)
            if not taken:
                await rows.forget()
                continue
            if rng.random() < 0.5:
                await renew(rows, taken)
            rng.shuffle(taken)
            left = list(taken)
            chosen = {row.key: rng.choice(moves) for row in taken}
            owners.leave(taken)  # from here on others may have them
            renewing = asyncio.create_task(renew(rows, sorted(taken, key=lambda row: row.term)))
            while left:
                done = await rows.settle(holder, left, [chosen[row.key] for row in left])
                assert done.keys() == {row.key for row in left}, "lost, although no lease has passed"
                left = [row for row in left if done[row.key] == "busy"]
            await renewing

    async def meddle() -> None:
        rng = random.Random(seed)
        async with await psycopg.AsyncConnection.connect(store.url) as connection:
            while goes_on():
                ids = rng.sample(range(1, 61), 5)
                await connection.execute("update t set touched = touched + 1 where id = any(%s)", [ids])
                await connection.commit()

    before = await deadlocks(desk)
    await asyncio.gather(meddle(), *(work(n) for n in range(6)))
    assert owners.claims > 200
    assert await deadlocks(desk) == before


@pytest.mark.slow
async def test_the_users_transactions_over_several_rows_cannot_deadlock_with_ours(desk: RowsDesk, store: Store) -> None:
    await fill(desk, 60)
    rows, holder, until = await desk.rows("open", **PLAIN), uuid4(), elapsed() + count(1, proof=3)
    before, waits, done = await deadlocks(desk), 0, Counter[str]()

    def goes_on() -> bool:
        """On a machine that is busy with other tests, until enough was done."""
        enough = min(done["user 1"], done["user 2"]) > 10 and done["ours"] > 100
        return elapsed() < until or (not enough and elapsed() < until + 30)

    async def user(n: int) -> None:
        """Locks rows in an order of its own, always the same, as careful code does."""
        rng = random.Random(n)
        async with await psycopg.AsyncConnection.connect(store.url) as connection:
            await connection.execute("set deadlock_timeout to '1min'")  # if there is one, it is ours that is ended
            await connection.commit()
            while goes_on():
                for id in sorted(rng.sample(range(1, 61), 6), reverse=True):
                    await connection.execute("update t set touched = touched + 1 where id = %s", [id])
                await connection.commit()
                done[f"user {n}"] += 1

    async def skipping(statement: Callable[[], Awaitable[T]]) -> T:
        """Once in some 100,000 statements PostgreSQL waits in spite of SKIP LOCKED, see decision 0064; never for another reason."""
        nonlocal waits
        while True:
            try:
                return await statement()
            except psycopg.errors.DeadlockDetected as error:
                if "while locking updated version" not in (error.diag.context or ""):
                    raise
                waits += 1

    async def ours() -> None:
        while goes_on():
            taken = await skipping(lambda: claimed(rows, holder, 20)) + await skipping(lambda: again(rows, holder, 20))
            left = taken
            while left:
                moves = [Change(Stay(), timedelta())] * len(left)
                settled = await skipping(partial(rows.settle, holder, left, moves))
                left = [row for row in left if settled.get(row.key) == "busy"]
            done["ours"] += len(taken)

    await asyncio.gather(user(1), user(2), ours())
    assert min(done["user 1"], done["user 2"]) > 10
    assert done["ours"] > 100
    assert await deadlocks(desk) == before + waits


@pytest.mark.parametrize("settling", ["settle", "settle_apart"])
@pytest.mark.parametrize(
    "ways",
    [
        (Change(Stay(), timedelta()), REST),
        (Change(Stay(touched=1), timedelta()), Change(Stay(owner="me"), timedelta())),
        (Remove(Delete()), RetryAfter(HOUR, failure(), spend=True)),
    ],
    ids=["a change and a rest", "two sets of columns", "a removal and a failure"],
)
async def test_a_holder_that_has_lost_its_rows_and_their_new_holder_cannot_deadlock(
    desk: RowsDesk, store: Store, clock: ManualClock, settling: str, ways: tuple[Any, Any]
) -> None:
    """Each transaction has several statements, and the others lock the same rows in another order."""
    await fill(desk, 20)
    rows = [await desk.rows("open", **PLAIN) for _ in range(3)]  # each with a connection of its own
    first, second = uuid4(), uuid4()
    lost = await claimed(rows[0], first, 20)
    clock.advance(days=1)
    taken = await again(rows[0], second, 20)
    assert len(lost) == len(taken) == 20
    before = await deadlocks(desk)

    async def settle(side: Rows, held: list[ClaimedRow], holder: UUID) -> None:
        moves = [ways[n % 2] for n in range(len(held))]
        for _ in range(count(30, proof=100)):
            await getattr(side, settling)(holder, held, moves)

    # Without the first row, each of the others has the other move.
    await asyncio.gather(
        settle(rows[0], lost, first), settle(rows[1], lost[1:], first), settle(rows[2], taken[1:], second)
    )
    assert await deadlocks(desk) == before
