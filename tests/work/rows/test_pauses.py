"""Circuit breakers: one per key, refusals of different rows, and handlers that ask everybody to wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.support.watching import until
from tests.work.rows.field import NAME, Field
from trueup import Again, App, ConfigError, Context, GiveUp, Retry, Row, To
from trueup.events import ReconcilerPaused, ReconcilerResumed, RowQuarantined
from trueup.reconcile.breaker import MAX_KEYS
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

BY = {"column": "note", "function": lambda row: row.note}


class Receivers:
    """Rows belong to receivers, some of which are down."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.again: dict[str, Any] = {}
        self.calls: list[str] = []
        self.attempts: list[int] = []

    async def handler(self, row: Row, *, ctx: Context) -> Any:
        self.calls.append(row.note)
        self.attempts.append(ctx.attempt)
        if row.note in self.again:
            return self.again[row.note]
        if row.note in self.down:
            raise ConnectionError(f"{row.note} is down")
        return To("done")

    def called(self) -> Counter[str]:
        calls, self.calls = Counter(self.calls), []
        return calls


@pytest.fixture(params=BY)
def by(request: pytest.FixtureRequest) -> Any:
    return BY[request.param]


async def put(field: Field, **counts: int) -> None:
    first = 1
    for name, count in counts.items():
        await field.put(count, first=first)
        await field.do("update things set note = %s where id >= %s", (name, first))
        first += count


async def keys(field: Field) -> list[str]:
    (record,) = await field.app.reconcilers.list()
    return list(record["paused_keys"])


async def test_only_rows_of_the_key_that_fails_wait(field: Field, clock: ManualClock, by: Any) -> None:
    receivers = Receivers()
    receivers.down = {"ann"}
    field.fix(receivers.handler, pause_by=by, pause_after=3, concurrency=1, batch=10, retry=Retry(max_attempts=2))
    await put(field, ann=40, bob=20, cy=20)
    await field.sweep()
    called = receivers.called()
    assert called == {"ann": 3, "bob": 20, "cy": 20}
    (paused,) = field.events.of(ReconcilerPaused)
    assert (paused.key, paused.seconds) == ("ann", 30)
    assert await keys(field) == ["ann"]
    for seconds in (30, 60, 120):  # one row at a time, ever more rarely, and the others go on
        await field.put(1, first=1000 + seconds)
        await field.do("update things set note = 'bob' where id = %s", (1000 + seconds,))
        clock.advance(seconds=seconds)
        await field.sweep()
        assert receivers.called() == {"ann": 1, "bob": 1}
    assert await field.value("select max(attempt) from trueup.rows") <= 1
    receivers.down = set()
    for _ in range(4):
        clock.advance(seconds=240)
        await field.sweep()
    assert await field.states() == {"done": 83}
    assert set(receivers.attempts) == {1}
    assert field.events.of(ReconcilerResumed, key="ann")
    assert await keys(field) == []


async def test_what_one_process_finds_out_holds_for_the_others(field: Field, clock: ManualClock) -> None:
    receivers = Receivers()
    receivers.down = {"ann"}
    field.fix(receivers.handler, pause_by="note", pause_after=2, concurrency=1)
    await field.app.store.pool.open()
    await field.sweep()
    await field.do(
        "insert into trueup.reconciler_pauses (reconciler, key, paused_until) values (%s, 'ann', %s + interval '1 min')",
        (NAME, clock.now()),
    )
    await put(field, ann=5, bob=5)
    await field.sweep()
    assert receivers.called() == {"bob": 5}
    assert await field.value("select count(*) from trueup.rows") == 0  # rows that wait are not touched at all
    assert await field.app.reconcilers.resume(NAME)
    receivers.down = set()
    await field.sweep()
    assert receivers.called() == {"ann": 5}


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_handler_can_ask_everybody_to_wait(field: Field, clock: ManualClock, keyed: bool) -> None:
    receivers = Receivers()
    receivers.again["ann"] = Again("90s", everybody=True)
    field.fix(receivers.handler, concurrency=1, **({"pause_by": "note"} if keyed else {}))
    await put(field, ann=20, bob=10)
    await field.sweep()
    assert receivers.called() == ({"ann": 1, "bob": 10} if keyed else {"ann": 1})
    (paused,) = field.events.of(ReconcilerPaused)
    assert (paused.seconds, paused.key) == (90, "ann" if keyed else None)
    clock.advance(seconds=89)
    await field.sweep()
    assert not receivers.called()
    receivers.again.clear()
    for _ in range(3):
        clock.advance(seconds=31)
        await field.sweep()
    assert await field.states() == {"done": 30}
    assert set(receivers.attempts) == {1}


async def test_while_a_key_is_probed_its_other_rows_wait(field: Field, clock: ManualClock, by: Any) -> None:
    receivers = Receivers()
    receivers.down = {"ann"}
    field.fix(receivers.handler, pause_by=by, pause_after=2, concurrency=10)
    await field.app.store.pool.open()
    await field.sweep()
    await field.do(
        "insert into trueup.reconciler_pauses (reconciler, key, paused_until) values (%s, 'ann', %s - interval '1 s')",
        (NAME, clock.now()),
    )
    await put(field, ann=10, bob=5)
    await field.sweep()
    assert receivers.called() == {"ann": 1, "bob": 5}


@pytest.mark.parametrize("never", [(1,), (1, 2, 3)], ids=["one row", "three rows"])
@pytest.mark.parametrize(
    "by", [None, "note", "at", lambda row: row.note], ids=["one breaker", "text", "timestamp", "function"]
)
async def test_rows_that_never_work_do_not_hold_the_others_once_all_could_work_again(
    field: Field, clock: ManualClock, by: Any, never: tuple[int, ...]
) -> None:
    """A timestamp is not the same text in Python and in PostgreSQL, so its rows are claimed and rest, as with a function."""
    down, calls = True, Counter[int]()

    def fix(row: Row) -> To:
        calls[row.id] += 1
        if down or row.id in never:
            raise ConnectionError("it is down")
        return To("done")

    await field.do("alter table things add at timestamptz not null default '2020-01-01'")
    keyed = {} if by is None else {"pause_by": by}
    retry = Retry(max_attempts=3, first="1s", jitter=False)
    field.fix(fix, **keyed, pause_after=3, concurrency=3, batch=10, retry=retry)
    await field.put(20)
    await field.do("update things set note = 'ann'")
    for _ in range(3):
        await field.sweep()
        clock.advance(minutes=11)  # longer than any pause
    down = False
    for _ in range(12):
        await field.sweep()
        clock.advance(minutes=11)
    assert (await field.states()).get("done") == 20 - len(never)
    assert len(field.events.of(RowQuarantined)) == len(never)
    assert sum(calls.values()) < 100


async def test_a_receiver_cannot_ask_for_more_than_a_day(field: Field) -> None:
    receivers = Receivers()
    receivers.again["ann"] = Again("400d", everybody=True)
    field.fix(receivers.handler, concurrency=1)
    await put(field, ann=2)
    await field.sweep()
    (paused,) = field.events.of(ReconcilerPaused)
    assert paused.seconds == 86_400


async def test_the_longest_wait_that_was_asked_for_counts(field: Field, clock: ManualClock) -> None:
    gate = asyncio.Event()
    waits = iter(["10s", "60s", "20s"])

    async def handler(row: Any) -> Any:
        await gate.wait()
        return Again(next(waits), everybody=True)

    field.fix(handler, concurrency=3)
    await field.put(3)
    await field.gather()
    sweep = asyncio.create_task(field.sweep())
    await until(lambda: len(field.sweeper().hand._tasks) == 3)
    gate.set()
    await sweep
    until_ = await field.value("select paused_until from trueup.reconcilers where name = %s", (NAME,))
    assert (until_ - clock.now()).total_seconds() == 60


@pytest.mark.parametrize("works", [None, 3])
async def test_refusals_of_different_rows_in_a_row_open_it(field: Field, clock: ManualClock, works: int | None) -> None:
    calls: list[int] = []

    async def handler(row: Any) -> Any:
        calls.append(row.id)
        if row.id == works:
            return To("done")
        raise [KeyError("teapot"), GiveUp("404"), ValueError("401")][row.id % 3]

    field.fix(handler, pause_after=4, pause_on="any", concurrency=1, batch=50, retry=Retry(give_up_on=(ValueError,)))
    await field.put(50)
    await field.sweep()
    assert len(calls) == (4 if works is None else 7)
    (paused,) = field.events.of(ReconcilerPaused)
    assert paused.reason.startswith("had row after row refused, the last one with ")
    clock.advance(seconds=31)
    await field.sweep()
    assert len(calls) == (5 if works is None else 8)  # one at a time


async def test_a_key_function_that_fails_is_no_reason_to_stop(field: Field) -> None:
    receivers = Receivers()
    field.fix(receivers.handler, pause_by=lambda row: row.nothing, pause_after=1)
    await put(field, ann=3)
    await field.sweep()
    assert await field.states() == {"done": 3}


async def test_more_open_keys_than_it_may_have_make_the_reconciler_rest(field: Field, clock: ManualClock) -> None:
    async def handler(row: Any) -> Any:
        raise ConnectionError("down")

    field.fix(handler, pause_by="id", pause_after=1, concurrency=1, retry=Retry(first="0s"))
    await field.sweep()
    await field.do(
        "insert into trueup.reconciler_pauses (reconciler, key, paused_until)"
        " select %s, 'k' || i, %s + interval '1 h' from generate_series(1, %s::int) as i",
        (NAME, clock.now(), MAX_KEYS),
    )
    await field.put(2)
    await field.sweep()
    await field.sweep()
    assert [each.key for each in field.events.of(ReconcilerPaused)] == [None]


@pytest.mark.parametrize("by", BY.values(), ids=BY)
async def test_a_worker_takes_up_rows_that_waited_without_waiting_for_its_next_sweep(app: App, by: Any) -> None:
    field, receivers = Field(app), Receivers()
    receivers.down = {"ann"}
    field.fix(receivers.handler, pause_by=by, pause_after=2, pause_for="300ms", concurrency=1, run_at_start=True)
    await field.prepare()
    await put(field, ann=10, bob=10)
    async with app.worker():
        await field.events.seen(ReconcilerPaused, key="ann")
        await until(lambda: receivers.calls.count("bob") == 10)
        receivers.down = set()
        await field.events.seen(ReconcilerResumed, key="ann")
        async with asyncio.timeout(10):
            while await field.states() != {"done": 20}:  # a slow server has more calls fail, one for each pause
                await asyncio.sleep(0.01)
    await field.close()
    assert set(receivers.attempts) == {1}


@pytest.mark.parametrize("when", ["before a sweep", "during a sweep", "just after another worker's sweep"])
async def test_a_key_that_works_again_brings_one_more_whole_sweep(
    live: Field, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    live.fix(Receivers().handler, pause_by="note", run_at_start=True)
    member = await live.gather()
    await member.run_once()
    whole: list[bool] = []
    sweep = member._sweep

    async def watched(each: Any, *given: Any, **more: Any) -> None:
        whole.append(each.whole)
        await sweep(each, *given, **more)
        if when == "during a sweep" and len(whole) == 1:
            member.timetable.sweep_soon()  # it has passed over rows of the key already

    monkeypatch.setattr(member, "_sweep", watched)
    if when == "during a sweep":
        member.timetable.due = 0.0
        await member.run_once()
    else:
        monkeypatch.setattr(member.timetable, "_swept_elsewhere", lambda gate: 3600.0 if "another" in when else None)
        member.timetable.sweep_soon()
    wait = await member.run_once()
    assert whole[-1]
    assert len(whole) == (2 if when == "during a sweep" else 1)
    assert wait > 0, "and then the next one is due in its time"
    await member.run_once()
    assert not whole[-1]


async def test_what_it_cannot_be_is_refused(field: Field) -> None:
    with pytest.raises(ConfigError, match="pause_by=5"):
        field.fix(lambda row: None, pause_by=5)
    field.fix(lambda row: None, pause_by="nothing", name="other")
    with pytest.raises(ConfigError, match="pause_by='nothing'"):
        await field.manual.sweep("other")
