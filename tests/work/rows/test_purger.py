"""Moves and deletions that the database does alone."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.work.rows.field import Field
from trueup.events import SweepCompleted, SweepFailed, SweepRefused
from trueup.reconcile.counts import Counts
from trueup.store.rows.reconcilers import Gate
from trueup.testing.clock import ManualClock
from trueup.work.rows import pace, purger
from trueup.work.rows.purger import Purger
from trueup.work.writing import SLOW

pytestmark = pytest.mark.asyncio


async def gathered(field: Field, name: str = "age") -> Purger:
    row_services = field.manual.worker.row_services
    row_services.declare(field.app._reconcilers.all())
    await row_services.gather()
    member = row_services.members[name]
    assert isinstance(member, Purger)
    return member


def age(field: Field, **options: Any) -> None:
    field.table.move("new", to="old", **{"stale_for": "10m", "name": "age", "every": "1h", **options})


async def test_stale_rows_are_moved_in_batches_until_none_is_left(field: Field) -> None:
    await field.put(25)
    await field.put(3, "else", first=100)
    age(field, batch=10, set={"note": "aged"})
    counts = await field.sweep("age")
    assert (counts.claimed, counts.changed) == (25, 25)
    assert await field.states() == {"old": 25, "else": 3}
    assert await field.value("select count(*) from things where note = 'aged'") == 25
    (event,) = field.events.of(SweepCompleted)
    assert (event.reconciler, event.changed, event.late) == ("age", 25, 25)
    assert await field.value("select claimed from trueup.sweeps") == 25


async def test_rows_that_are_not_stale_yet_stay(field: Field, clock: ManualClock) -> None:
    await field.put(3)
    await field.do("update things set changed_at = %s where id = 1", (clock.now(),))
    age(field)
    assert (await field.sweep("age")).changed == 2
    assert (await field.sweep("age")).changed == 0
    clock.advance(minutes=11)
    assert (await field.sweep("age")).changed == 1


async def test_a_sweep_that_would_touch_too_much_is_refused(field: Field) -> None:
    await field.put(10)
    age(field, max_fraction=0.5)
    assert (await field.sweep("age")).changed == 0
    (event,) = field.events.of(SweepRefused)
    assert "max_fraction=0.5 allows" in event.reason
    await field.put(90, "else", first=100)
    assert (await field.sweep("age")).changed == 10


async def test_rows_that_come_during_a_sweep_are_compared_with_the_table_as_well(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.put(20)
    await live.put(30, "else", first=100)
    age(live, max_fraction=0.5, batch=10)
    sweeping = await gathered(live)
    take = sweeping.purges.take

    async def importing(state: str | None, counts: Counts, batches: int = 1, *more: Any, **limit: Any) -> Any:
        if not counts.changed:
            await live.put(500, first=1000)
        return await take(state, counts, batches, *more, **limit)

    monkeypatch.setattr(sweeping.purges, "take", importing)
    assert (await live.sweep("age")).changed == 20
    (event,) = live.events.of(SweepRefused)
    assert event.reason == "500 of 550 rows would be changed, more than max_fraction=0.5 allows"


async def test_nothing_is_touched_while_it_is_paused(live: Field) -> None:
    await live.put(3)
    age(live)
    sweeping = await gathered(live)
    await live.do("update trueup.reconcilers set state = 'paused'")
    assert await sweeping.run_once() == pace.PAUSED_LOOK
    assert (await live.sweep("age")).changed == 0
    await live.do("update trueup.reconcilers set state = 'active'")
    assert (await live.sweep("age")).changed == 3


async def test_a_pause_ends_a_sweep_that_is_under_way(live: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.put(30)
    age(live, batch=10)
    sweeping = await gathered(live)
    take = sweeping.purges.take

    async def pausing(state: str | None, counts: Counts, batches: int = 1, *more: Any, **limit: Any) -> Any:
        await live.do("update trueup.reconcilers set state = 'paused'")
        monkeypatch.setattr(purger, "LOOK_AT_GATE", 0.0)
        return await take(state, counts, batches, *more, **limit)

    monkeypatch.setattr(sweeping.purges, "take", pausing)
    assert (await live.sweep("age")).changed == 10


async def test_more_and_more_batches_are_asked_for_together_while_they_are_quick(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.put(95)
    age(live, batch=10)
    sweeping = await gathered(live)
    take, asked = sweeping.purges.take, []

    async def taking(state: str | None, counts: Counts, batches: int = 1, *more: Any, **limit: Any) -> Any:
        asked.append(batches)
        return await take(state, counts, batches, *more, **limit)

    monkeypatch.setattr(sweeping.purges, "take", taking)
    counts = await live.sweep("age")
    assert (counts.changed, counts.lateness.count) == (95, 95)
    assert await live.states() == {"old": 95}
    assert asked[0] == 1
    assert all(more <= 2 * before for before, more in itertools.pairwise(asked))


async def test_what_was_done_before_a_deadlock_with_somebody_else_is_told(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.put(30)
    age(live, batch=10)
    sweeping = await gathered(live)
    take = sweeping.purges.take

    async def taking(state: str | None, counts: Counts, batches: int = 1, *more: Any, **limit: Any) -> Any:
        if counts.changed:
            raise errors.DeadlockDetected("deadlock detected")
        return await take(state, counts, batches, *more, **limit)

    monkeypatch.setattr(sweeping.purges, "take", taking)
    with pytest.raises(errors.DeadlockDetected):
        await live.sweep("age")
    assert [event.changed for event in live.events.of(SweepCompleted)] == [10]
    assert await live.value("select sum(changed) from trueup.sweeps") == 10


async def test_batches_of_a_message_that_went_before_a_failed_one_are_counted(live: Field) -> None:
    await live.put(35)
    await live.do(
        "create function refuse() returns trigger language plpgsql as"
        " $$ begin if new.id = 25 then raise 'not this one'; end if; return new; end $$"
    )
    await live.do("create trigger refuse before update on things for each row execute function refuse()")
    age(live, batch=10)
    purges, counts = (await gathered(live)).purges, Counts()
    with pytest.raises(psycopg.Error, match="not this one"):
        await purges.take("new", counts, 4)
    assert (counts.changed, counts.lateness.count) == (20, 20)
    assert await live.states() == {"old": 20, "new": 15}


async def test_it_starts_at_once_when_asked_to_and_stops(live: Field) -> None:
    await live.put(5)
    age(live, run_at_start=True)
    async with live.app.worker():
        (event,) = await live.events.seen(SweepCompleted)
    assert event.changed == 5


async def test_a_statement_that_takes_too_long_is_reported_and_the_next_sweep_happens(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.put(5)
    age(live, run_at_start=True, every="50ms")
    worker = live.app.worker()
    await worker.row_services.gather()
    member = worker.row_services.members["age"]
    assert isinstance(member, Purger)
    # For longer than SLOW: an error of a timeout that comes sooner is taken for that of a row that raises it.
    slow = f"set local statement_timeout = {int(1_100 * SLOW)}; select pg_sleep(9)".encode()
    monkeypatch.setattr(member.purges, "steer", slow)
    async with worker:
        (event, *_) = await live.events.seen(SweepFailed)
        assert event.error_type == "psycopg.errors.QueryCanceled"
        monkeypatch.undo()
        await live.events.seen(SweepCompleted)


async def test_a_deadline_ends_a_sweep(live: Field) -> None:
    await live.put(200)
    await live.do(  # two seconds for all of them
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.01); return new; end $$;"
        "create trigger slow before update on things for each row execute function slow()"
    )
    age(live, batch=1, deadline="500ms")
    counts = await live.sweep("age")
    assert 0 < counts.changed < 200


async def test_a_rate_holds_for_moves(live: Field) -> None:
    await live.put(30)
    age(live, rate="20/s", run_at_start=True)
    async with live.app.worker():
        (event,) = await live.events.seen(SweepCompleted)
    assert event.changed == 30
    assert event.duration_ms > 1000


@pytest.mark.parametrize(
    ("batches", "took", "then"),
    [(1, 0.001, 2), (8, 0.008, 16), (16, 0.016, 16), (2, 0.08, 2), (8, 0.4, 2), (8, 4.0, 1), (1, 60.0, 1), (1, 0.0, 2)],
)
async def test_as_many_batches_in_a_message_as_take_a_tenth_of_a_second(batches: int, took: float, then: int) -> None:
    assert pace.next_batches(batches, took) == then


@pytest.mark.parametrize(
    ("swept_ago", "least", "most"), [(None, 0, 5), (0.0, 300, 305), (299.0, 1, 6), (900.0, 0, 5), (-3600.0, 300, 305)]
)
async def test_a_first_sweep_is_due_when_the_last_one_is_long_enough_ago(
    swept_ago: float | None, least: float, most: float
) -> None:
    """Ahead of the clock: it has been set back since."""
    gate = Gate(paused=False, rests_for=None, pauses=0, swept_ago=swept_ago, now=datetime.now(UTC))
    assert least <= pace.first_after(timedelta(minutes=5), run_at_start=False, gate=gate) <= most
