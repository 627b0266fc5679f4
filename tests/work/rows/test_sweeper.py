"""Sweeps: which rows they look at, in which order, when they end, and when they rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.watching import until
from tests.work.rows.field import NAME, Field
from trueup import Again, App, Context, GiveUp, Retry, Stay, To
from trueup.events import (
    DatabaseLost,
    ReconcilerPaused,
    ReconcilerResumed,
    RowChanged,
    RowQuarantined,
    RowRetried,
    RowsClaimed,
    StatementTimedOut,
    SweepCompleted,
    SweepFailed,
)
from trueup.store.rows.reconcilers import Gate
from trueup.testing.clock import NOON, ManualClock
from trueup.work.rows import pace, sweeper, timetable
from trueup.work.rows.pace import STARTS_WITHIN, first_after

pytestmark = pytest.mark.asyncio


class Sink:
    """Something outside that every handler needs, and that may be down."""

    def __init__(self, poison: set[int] | None = None) -> None:
        self.down = False
        self.poison = poison or set()
        self.calls: list[int] = []
        self.attempts: dict[int, int] = {}

    async def handler(self, row: Any, *, ctx: Context) -> Any:
        self.calls.append(row.id)
        self.attempts[row.id] = ctx.attempt
        if self.down or row.id in self.poison:
            raise ConnectionError("the sink is down")
        return To("done")


# -- which rows, and in which order ---------------------------------------------------------------------------------------


async def test_the_oldest_rows_come_first(field: Field) -> None:
    seen: list[int] = []

    async def handler(row: Any) -> Any:
        seen.append(row.id)
        return To("done")

    await field.put(25)
    await field.do("update things set changed_at = changed_at - id * interval '1 m'")
    field.fix(handler, batch=4, concurrency=1)
    assert (await field.sweep()).changed == 25
    assert seen == list(range(25, 0, -1))


@pytest.mark.parametrize("outcome", ["unchanged", "failure", "stay"])
async def test_each_row_is_looked_at_once_in_a_sweep_whatever_comes_of_it(
    field: Field, clock: ManualClock, outcome: str
) -> None:
    seen: Counter[int] = Counter()

    async def handler(row: Any) -> Any:
        seen[row.id] += 1
        if outcome == "failure":
            raise ValueError
        return None if outcome == "unchanged" else Stay(n=row.n + 1)

    await field.put(50)
    field.fix(handler, batch=7, retry=Retry(first="0s", cap="0s", max_attempts=100), revisit="0s")
    for sweeps in (1, 2, 3):
        clock.advance(microseconds=1)
        counts = await field.sweep()
        if outcome == "stay" and sweeps > 1:
            assert counts.claimed == 0  # they are not stale any more
            continue
        assert counts.claimed == 50
        assert set(seen.values()) == {sweeps}


async def test_a_row_that_is_made_due_at_once_is_not_looked_at_twice_in_a_sweep(
    field: Field, clock: ManualClock
) -> None:
    seen: Counter[int] = Counter()

    async def handler(row: Any, *, ctx: Context) -> Any:
        seen[row.id] += 1
        assert seen.total() < 100
        return Stay(due_at=ctx.now if row.id % 2 else ctx.now + timedelta(seconds=30))

    await field.put(6)
    field.fix(handler, due_at="due_at", batch=2, every="1m", revisit="10s")
    assert (await field.sweep()).changed == 6
    assert (await field.sweep()).claimed == 0
    clock.advance(seconds=10)
    assert (await field.sweep()).claimed == 3
    clock.advance(seconds=20)
    assert (await field.sweep()).claimed == 6


@pytest.mark.parametrize("chosen", [{"due_at": "due_at"}, {"stale_for": "10s"}])
async def test_a_row_due_again_during_a_long_sweep_waits_for_the_next_one(
    field: Field, clock: ManualClock, chosen: dict[str, str]
) -> None:
    seen: Counter[int] = Counter()

    async def handler(row: Any, *, ctx: Context) -> Any:
        seen[row.id] += 1
        assert seen.total() < 100
        clock.advance(minutes=1)
        return Stay(due_at=ctx.now + timedelta(seconds=10))

    await field.put(6)
    field.fix(handler, batch=2, concurrency=1, every="1h", revisit="0s", lease_for="1h", **chosen)
    for sweeps in (1, 2):
        assert (await field.sweep()).changed == 6
        assert set(seen.values()) == {sweeps}
        clock.advance(minutes=1)


async def test_rows_that_become_due_while_a_handler_hangs_do_not_wait_for_it(live: Field) -> None:
    await live.put(3)
    go_on = asyncio.Event()

    async def handler(row: Any) -> Any:
        if row.id == 1:  # another one, due while this one runs
            await live.do("insert into things values (9, 'new', now(), now())")
            await go_on.wait()
        return To("done")

    live.fix(handler, due_at="due_at", every="200ms", run_at_start=True)
    async with live.app.worker():
        await live.events.seen(RowChanged, count=3)
        assert (await live.thing(9))["state"] == "done"
        go_on.set()
        sweeps = await live.events.seen(SweepCompleted, count=2)
    assert [event.changed for event in sweeps[:2]] == [1, 3]


@pytest.mark.slow
async def test_one_row_that_always_fails_keeps_none_of_ten_thousand_waiting(field: Field, clock: ManualClock) -> None:
    async def handler(row: Any) -> Any:
        if row.id == 1:
            raise ValueError("poison")
        return To("done")

    await field.put(10_000)
    field.fix(handler, batch=1_000, concurrency=50, retry=Retry(max_attempts=3, first="1s", factor=1))
    counts = await field.sweep()
    assert (counts.changed, counts.retry, counts.settled) == (9_999, 1, 10_000)
    for _ in range(2):
        clock.advance(seconds=1)
        await field.sweep()
    assert [event.key for event in field.events.of(RowQuarantined)] == ["1"]
    assert await field.states() == {"done": 9_999, "new": 1}


async def test_rows_that_come_again_and_fresh_ones_take_turns(field: Field, clock: ManualClock) -> None:
    seen: list[int] = []
    failing = True

    async def handler(row: Any) -> Any:
        seen.append(row.id)
        if failing:
            raise ValueError
        return To("done")

    await field.put(40)
    field.fix(handler, batch=10, concurrency=1, retry=Retry(first="1s", max_attempts=5))
    await field.sweep()
    await field.put(40, first=101)
    clock.advance(seconds=1)
    seen.clear()
    failing = False
    assert (await field.sweep()).changed == 80
    batches = [{"old" if key <= 40 else "new" for key in seen[n : n + 10]} for n in range(0, 80, 10)]
    assert all(len(batch) == 1 for batch in batches)
    kinds = [batch.pop() for batch in batches]
    assert kinds in (["old", "new"] * 4, ["new", "old"] * 4)


async def test_rows_that_failed_are_woken_for_between_whole_sweeps(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timetable, "MIN_PAUSES", (0.01, 0.01))
    tries: list[int] = []

    async def handler(row: Any) -> Any:
        tries.append(row.id)
        if len(tries) < 4:
            raise ValueError
        return To("done")

    await live.put()
    live.fix(handler, run_at_start=True, retry=Retry(max_attempts=9, first="10ms", factor=1))
    async with live.app.worker():
        await live.events.seen(RowChanged)
    assert len(tries) == 4


async def test_a_row_that_comes_to_rest_during_a_pass_that_claims_nothing_is_woken_for(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the pass read when it began knows only of the row's lease: 30 s, where the row is to be looked at again in 0.2 s."""
    go = asyncio.Event()

    async def handler(row: Any) -> Any:
        await go.wait()
        return Again("200ms")

    await live.put()
    live.fix(handler, run_at_start=True)
    member = await live.gather()
    await member.run_once()
    assert not member.hand.idle
    pass_over = member._sweep

    async def meanwhile(*arguments: Any, **more: Any) -> None:
        await pass_over(*arguments, **more)
        go.set()
        await member.changes.until(lambda: member.hand.idle and not member.finisher.pending)

    monkeypatch.setattr(member, "_sweep", meanwhile)
    member._wake.clear()
    pause = await member.run_once()
    assert pause < 5 or member._wake.is_set()
    await live.manual.worker.row_services.stop()


async def test_a_deadline_ends_a_sweep_and_the_next_one_does_the_rest(live: Field) -> None:
    async def handler(row: Any) -> Any:
        await asyncio.sleep(0.01)
        return To("done")

    await live.put(200)
    live.fix(handler, deadline="100ms", batch=2, concurrency=1)
    first = await live.sweep()
    assert 0 < first.changed < 150
    assert first.settled == first.claimed
    assert await live.value("select last_swept_at is not null from trueup.reconcilers")
    second = await live.sweep()
    assert second.changed > 0


async def test_no_more_than_a_batch_and_a_half_is_in_hand_beside_what_runs(field: Field) -> None:
    most = 0

    async def handler(row: Any) -> Any:
        nonlocal most
        await asyncio.sleep(0.005)  # longer than claiming takes
        most = max(most, len(list(field.sweeper().hand.in_hand())))
        return To("done")

    await field.put(400)
    field.fix(handler, batch=20, concurrency=5)
    assert (await field.sweep()).changed == 400
    assert 20 <= most <= 30 + 5


# -- when -----------------------------------------------------------------------------------------------------------------


def gate(swept_ago: float | None = None) -> Gate:
    return Gate(False, None, 0, swept_ago, NOON)


async def test_the_first_sweep_of_a_process_comes_when_the_fleets_last_is_every_ago() -> None:
    every = timedelta(minutes=10)
    assert first_after(every, True, gate(1)) == 0
    for _ in range(100):
        assert 0 <= first_after(every, False, gate()) <= STARTS_WITHIN
        assert 540 <= first_after(every, False, gate(60)) <= 540 + STARTS_WITHIN
        assert 0 <= first_after(every, False, gate(100_000)) <= STARTS_WITHIN
        assert 0 <= first_after(timedelta(seconds=1), False, gate()) <= 0.1


async def test_a_worker_that_starts_soon_after_a_sweep_waits_its_turn(live: Field) -> None:
    await live.put(3)
    live.fix(lambda row: To("done"))
    assert (await live.sweep()).changed == 3
    await live.put(3, first=10)
    async with live.app.worker() as worker:
        await until(lambda: live.sweeper(worker).timetable.due is not None)
        assert (await live.states())["new"] == 3


async def test_sweeps_are_told_of_and_logged_when_they_found_something(field: Field) -> None:
    field.fix(lambda row: To("done"))
    await field.sweep()
    assert field.events.of(SweepCompleted) == []
    await field.put(5)
    await field.sweep()
    (event,) = field.events.of(SweepCompleted)
    assert (event.reconciler, event.claimed, event.changed, event.late) == (NAME, 5, 5, 5)
    (logged,) = await field.ask("select * from trueup.sweeps")
    assert (logged["claimed"], logged["changed"], logged["started_at"]) == (5, 5, NOON)
    assert sum(logged["lateness"]) == 5


# -- pauses ---------------------------------------------------------------------------------------------------------------


async def test_nothing_is_claimed_while_a_person_has_paused_it(field: Field) -> None:
    await field.put(3)
    field.fix(lambda row: To("done"))
    sweeper = await field.gather()
    await field.do("update trueup.reconcilers set state = 'paused'")
    assert (await field.sweep()).claimed == 0
    assert await sweeper.run_once() == pace.PAUSED_LOOK
    await field.do("update trueup.reconcilers set state = 'active'")
    assert (await field.sweep()).changed == 3


async def test_a_pause_ends_a_sweep_that_is_under_way_and_the_rest_is_made_up_for(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "LOOK_AT_GATE", 0.0)
    paused = False

    async def handler(row: Any) -> Any:
        nonlocal paused
        if not paused:
            paused = True
            await live.do("update trueup.reconcilers set state = 'paused'")
        return To("done")

    await live.put(100)
    live.fix(handler, batch=10, concurrency=1)
    first = await live.sweep()
    assert 0 < first.changed <= 30
    assert await live.value("select last_swept_at is null from trueup.reconcilers")
    await live.do("update trueup.reconcilers set state = 'active'")
    assert (await live.sweep()).changed == 100 - first.changed


# -- the breaker ----------------------------------------------------------------------------------------------------------


async def test_failures_of_the_same_kind_pause_it_for_the_fleet_and_spend_no_attempts(
    field: Field, clock: ManualClock
) -> None:
    sink = Sink()
    sink.down = True
    await field.put(100)
    field.fix(sink.handler, pause_after=5, pause_for="30s", batch=10, concurrency=1, retry=Retry(max_attempts=3))
    counts = await field.sweep()
    assert len(sink.calls) == 5  # the others in hand go back
    assert counts.quarantined == 0
    assert counts.settled == counts.claimed
    (event,) = field.events.of(ReconcilerPaused)
    assert "ConnectionError: the sink is down" in event.reason
    assert event.seconds == 30
    gate = await field.gate()
    assert gate["pauses"] == 1
    assert gate["paused_until"] == clock.now() + timedelta(seconds=30)
    assert await field.value("select count(*) from trueup.rows where attempt > 0") == 0
    assert (await field.sweep()).claimed == 0


async def test_a_pause_is_followed_by_one_row_at_a_time_and_grows_until_one_works(
    field: Field, clock: ManualClock
) -> None:
    sink = Sink()
    sink.down = True
    await field.put(20)
    field.fix(sink.handler, pause_after=3, pause_for="30s", retry=Retry(max_attempts=2))
    await field.sweep()
    for seconds in (60, 120, 240, 480, 600, 600):
        gate = await field.gate()
        clock.advance(seconds=(gate["paused_until"] - clock.now()).total_seconds())
        sink.calls.clear()
        counts = await field.sweep()
        assert (counts.claimed, len(sink.calls), counts.quarantined) == (1, 1, 0)
        assert field.events.of(ReconcilerPaused)[-1].seconds == seconds
    sink.down = False
    clock.advance(minutes=10)
    assert (await field.sweep()).changed == 20
    assert len(field.events.of(ReconcilerResumed)) == 1
    assert set(sink.attempts.values()) == {1}
    gate = await field.gate()
    assert (gate["pauses"], gate["paused_until"], gate["note"]) == (0, None, None)


async def test_failures_of_different_kinds_do_not_count_together(field: Field) -> None:
    async def handler(row: Any) -> Any:
        raise (ValueError, KeyError)[row.id % 2]("own fault")

    await field.put(40)
    field.fix(handler, pause_after=3, concurrency=1)
    assert (await field.sweep()).retry == 40
    assert field.events.of(ReconcilerPaused) == []


async def test_what_is_final_by_its_nature_does_not_count(field: Field) -> None:
    async def handler(row: Any) -> Any:
        raise (GiveUp("gone") if row.id % 2 else KeyError("wrong data"))

    await field.put(40)
    field.fix(handler, pause_after=3, concurrency=1, retry=Retry(give_up_on=(KeyError,)))
    assert (await field.sweep()).quarantined == 40
    assert field.events.of(ReconcilerPaused) == []


async def test_in_a_streak_nobody_is_out_of_attempts(field: Field) -> None:
    sink = Sink()
    sink.down = True
    exhausted: list[int] = []
    await field.put(4)
    field.fix(
        sink.handler,
        pause_after=4,
        concurrency=1,
        retry=Retry(max_attempts=1),
        exhausted=lambda row, error: exhausted.append(row.id),
    )
    counts = await field.sweep()
    # The first may have failed for a reason of its own; from the second on it is known that others do, too.
    assert (counts.quarantined, counts.retry) == (1, 3)
    assert exhausted == [1]
    assert len(field.events.of(ReconcilerPaused)) == 1
    assert await field.value("select max(attempt) from trueup.rows where state = 'resting'") == 0


async def test_a_success_in_between_ends_a_streak(field: Field) -> None:
    sink = Sink(poison={1, 2, 4, 5, 7, 8})
    await field.put(9)
    field.fix(sink.handler, pause_after=3, concurrency=1)
    counts = await field.sweep()
    assert (counts.retry, counts.changed) == (6, 3)
    assert field.events.of(ReconcilerPaused) == []


async def test_poison_at_the_front_delays_good_rows_by_a_pause_or_two_only(field: Field, clock: ManualClock) -> None:
    sink = Sink(poison={1, 2, 3, 4})
    await field.put(50)
    field.fix(sink.handler, pause_after=3, pause_for="30s", concurrency=1, batch=3, retry=Retry(max_attempts=3))
    for _ in range(20):
        await field.sweep()
        if (await field.states()).get("done") == 46:
            break
        clock.advance(minutes=1)
    pauses = len(field.events.of(ReconcilerPaused))
    assert pauses <= 5
    assert await field.states() == {"done": 46, "new": 4}
    for _ in range(6):
        clock.advance(minutes=1)
        await field.sweep()
    assert len(field.events.of(ReconcilerPaused)) == pauses
    assert {event.key for event in field.events.of(RowQuarantined)} == {"1", "2", "3", "4"}


async def test_a_pause_that_another_process_made_is_heeded_and_so_is_its_end(field: Field, clock: ManualClock) -> None:
    sink = Sink()
    await field.put(20)
    field.fix(sink.handler, pause_after=3, pause_for="30s")
    sweeper = await field.gather()
    until_ = clock.now() + timedelta(seconds=30)
    await field.do("update trueup.reconcilers set pauses = 2, paused_until = %s", (until_,))
    assert (await field.sweep()).claimed == 0
    assert await sweeper.run_once() == pace.PAUSED_LOOK
    clock.advance(seconds=27)
    assert await sweeper.run_once() == 3
    clock.advance(seconds=3)
    sink.down = True
    counts = await field.sweep()
    assert (counts.claimed, counts.retry) == (1, 1)
    assert field.events.of(ReconcilerPaused)[-1].seconds == 120
    sink.down = False
    await field.do("update trueup.reconcilers set pauses = 0, paused_until = null")
    field.events.events.clear()
    await field.sweep()
    assert field.events.of(RowsClaimed)[0].count > 1


async def test_without_pause_after_it_never_pauses(field: Field) -> None:
    sink = Sink()
    sink.down = True
    await field.put(50)
    field.fix(sink.handler, concurrency=1)
    assert (await field.sweep()).retry == 50
    assert field.events.of(ReconcilerPaused) == []


# -- rows of processes that died ------------------------------------------------------------------------------------------


async def test_rows_that_were_begun_by_a_process_that_died_are_taken_one_at_a_time(
    field: Field, clock: ManualClock
) -> None:
    running = peak = 0
    attempts: list[int] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        attempts.append(ctx.attempt)
        await asyncio.sleep(0.1)
        running -= 1
        return To("done")

    await field.put(5)
    field.fix(handler, concurrency=5, lease_for="30s")
    sweeper = await field.gather()
    await sweeper.rows.claims.fresh(uuid4(), 5, None)  # and then it died
    await field.do("update trueup.rows set holder = gen_random_uuid(), started = key <> '5'")
    assert (await field.sweep()).claimed == 0
    clock.advance(seconds=31)
    assert (await field.sweep()).changed == 5
    assert peak == 2  # and beside them the one that had not been begun
    assert attempts == [1] * 5


@pytest.mark.parametrize("first", [False, True], ids=["suspects beside the others", "suspects first"])
async def test_a_row_that_kills_its_process_each_time_is_quarantined_without_another_run(
    field: Field, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    called: list[int] = []

    async def handler(row: Any) -> Any:
        called.append(row.id)

    await field.put()
    field.fix(handler, retry=Retry(max_attempts=2), exhausted=lambda row, error: To("dead", note=str(row.id)))
    sweeper = await field.gather()
    await sweeper.rows.claims.fresh(uuid4(), 1, None)
    for suspects in (False, True, True):
        clock.advance(seconds=31)
        batch = await sweeper.rows.claims.again(uuid4(), 1, clock.now(), suspects=suspects)
        assert len(batch.rows) == 1
        assert not batch.rows[0].spent
    clock.advance(seconds=31)
    others = sweeper._batches

    async def once_suspects_are_through(*given: Any) -> None:
        if first:
            await sweeper.changes.until(lambda: sweeper._suspects is None or sweeper._suspects.done())
        await others(*given)

    monkeypatch.setattr(sweeper, "_batches", once_suspects_are_through)
    assert (await field.sweep()).changed == 1, "what became of suspects counts, whenever they were through"
    assert called == []
    assert ((await field.thing())["state"], (await field.thing())["note"]) == ("dead", "1")


# -- statements that take too long ----------------------------------------------------------------------------------------


async def test_a_claim_that_is_cancelled_is_reported_and_the_next_sweep_happens(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.put(3)
    live.fix(lambda row: To("done"), run_at_start=True, every="100ms")
    worker = live.app.worker()
    await worker.row_services.gather()
    rows = live.sweeper(worker).rows
    monkeypatch.setattr(rows, "steer", b"select set_config('statement_timeout', '1', true), pg_sleep(0.01)")
    async with worker:
        (event, *_) = await live.events.seen(SweepFailed)
        assert event.error_type.endswith("QueryCanceled")
        assert "an index may be missing" in event.error
        assert "an index may be missing" in (await live.gate())["last_error"]
        monkeypatch.undo()
        await live.events.seen(RowChanged, count=3)
        await live.events.seen(SweepCompleted)
        assert live.events.of(StatementTimedOut, part="rows claim")
        assert live.events.of(DatabaseLost) == []  # the server has answered
    assert (await live.gate())["last_error"] is None


async def test_sweeps_that_fail_in_a_row_are_repeated_after_longer_and_longer_pauses(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.fix(lambda row: To("done"), run_at_start=True, every="10s")
    member = await live.gather()
    monkeypatch.setattr(member.rows, "steer", b"select 1 / 0")
    member.start()
    for pause in (1.0, 2.0, 4.0, 8.0, 10.0):
        await live.events.seen(SweepFailed, again_s=pause)
        member.wake()
    await member.stop()


async def test_retried_rows_are_told_of(field: Field) -> None:
    await field.put()

    async def handler(row: Any) -> Any:
        raise ValueError("boom")

    field.fix(handler, retry=Retry(max_attempts=7, first="90s", cap="5m"))
    await field.sweep()
    (event,) = field.events.of(RowRetried)
    assert (event.attempt, event.max_attempts, event.delay_ms, event.error) == (1, 7, 90_000, "boom")


@pytest.mark.slow
async def test_a_sweep_without_an_end_comes_back_to_rows_before_its_place(app: App, live: Field) -> None:
    """Rows come faster than they are handled, behind those that are there; one that is put back is the first in the order."""
    await live.do(
        "create function more() returns trigger language plpgsql as $$ begin"
        " if old.id >= 16 and old.id < 1000000000 then insert into things (id, state, changed_at)"
        " values (old.id * 2, 'new', now()), (old.id * 2 + 1, 'new', now()); end if; return null; end $$;"
        " create trigger more after update on things for each row execute function more()"
    )
    await live.put(16, first=16)
    handled: set[int] = set()

    async def handler(row: Any) -> To:
        handled.add(row.id)
        return To("done")

    table = app.table("things", key="id", state="state")
    live.fix(handler, table=table, stale_for=None, every="300ms", run_at_start=True)
    async with app.worker():
        await until(lambda: len(handled) > 500)
        await live.put(1)
        await until(lambda: 1 in handled, 8)
