"""Where many rows rest, a sweep looks at the first ones and behind the last, and walks past all of them only now and then; and of a fleet
one worker sweeps per interval."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.work.rows.field import NAME, Field
from trueup import To
from trueup.store.rows import claiming
from trueup.store.rows import rows as store_rows
from trueup.store.rows.reconcilers import Gate
from trueup.testing.clock import NOON
from trueup.work.rows import pace, walker
from trueup.work.rows.pace import OWN_TURN, WALKS_WITHIN, is_walk_due, swept_elsewhere

SECOND = timedelta(seconds=1)
MANY = 200_000


def gate(**known: Any) -> Gate:
    return Gate(False, None, 0, known.pop("swept_ago", None), NOON, **known)


@pytest.mark.parametrize(
    ("past", "written", "ago", "due"),
    [
        (None, False, None, True),  # nobody has walked yet
        (0, False, 1.0, True),
        (1_000, False, 1.0, True),  # so few cost nothing
        (1_000, False, 0.5, False),
        (MANY, False, 1.0, False),
        (MANY, False, 59.0, False),
        (MANY, False, 61.0, True),
        (MANY, True, 5.0, False),
        (MANY, True, 7.0, True),
        (10**9, False, WALKS_WITHIN - 1, False),
        (10**9, False, WALKS_WITHIN, True),
        (MANY, False, -5.0, True),  # the clock was set back
    ],
)
def test_a_walk_is_put_off_by_what_it_costs(past: int | None, written: bool, ago: float | None, due: bool) -> None:
    known = gate(walked_ago=ago, walked_past=past, walked_writes=7, writes=8 if written else 7)
    assert is_walk_due(SECOND, known) is due
    assert is_walk_due(SECOND, gate(walked_ago=ago, walked_past=past, walked_writes=7, writes=None)) is (
        due or ago == 59.0
    ), "a table whose writes nobody counts is taken for one that was written to"
    assert is_walk_due(SECOND, known, anywhere=True) is (due or ago == 59.0), "rows become due without a write"


@pytest.mark.parametrize(
    ("swept_ago", "own_ago", "waits"),
    [
        (None, None, False),  # nobody ever has
        (0.1, None, True),
        (OWN_TURN, None, False),  # long enough ago
        (0.1, 5.0, True),
        (0.1, 0.1, False),  # that was this one
        (0.1, 0.15, False),
        (-3.0, None, False),  # the clock was set back
    ],
)
def test_a_sweep_of_another_worker_is_as_good_as_ones_own(
    swept_ago: float | None, own_ago: float | None, waits: bool
) -> None:
    later = swept_elsewhere(SECOND, gate(swept_ago=swept_ago), own_ago)
    assert (later is not None) is waits
    if later is not None and swept_ago is not None:
        assert 1.1 - swept_ago < later <= 1.5 - swept_ago, "not before the worker that swept last, nor much later"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows are many."""
    for module in (claiming, store_rows):
        monkeypatch.setattr(module, "MIN_WINDOW", 10)
    monkeypatch.setattr(claiming, "PROBE_WINDOW", 3)
    monkeypatch.setattr(walker, "MANY_KNOWN", 10)
    monkeypatch.setattr(pace, "PASSING_COSTS", 1.0)


async def resting(field: Field, count: int) -> None:
    await field.do(
        "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)"
        " select %s, n::text, 'resting', now() + interval '1 h', n, 0, now(), now() from generate_series(1, %s) as n",
        (NAME, count),
    )


@pytest.mark.asyncio
@pytest.mark.usefixtures("few")
async def test_new_rows_are_found_at_both_ends_and_in_between_when_a_walk_is_due(
    live: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    async def fix(row: Any) -> To:
        seen.append(row.id)
        return To("done")

    live.fix(fix, every="50ms", batch=2, order_by="id", stale_for=None, run_at_start=True)
    await live.do(
        "insert into things (id, state, changed_at) select n * 10, 'new', now() from generate_series(1, 100) as n"
    )
    await live.do(
        "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)"
        " select %s, (n * 10)::text, 'resting', now() + interval '1 h', n, 0, now(), now() from generate_series(1, 100) as n",
        (NAME,),
    )
    member = await live.gather()

    async def sweep() -> Gate:
        member.timetable.due = 0.0
        await member.run_once()
        await member.changes.until(lambda: member.hand.idle and member._sweeps.all_over)
        return await member._log.gate(NAME)

    first = await sweep()
    assert (seen, first.walked_past) == ([], 100)
    await live.do(
        "insert into things (id, state, changed_at) values (5, 'new', now()), (555, 'new', now()), (2000, 'new', now())"
    )
    second = await sweep()
    assert seen == [5, 2000]
    assert second.walked_ago is not None
    assert first.walked_ago is not None
    assert second.walked_ago > first.walked_ago, "it has walked past all rows again"
    monkeypatch.setattr(pace, "WALKS_WITHIN", 0.0)
    third = await sweep()
    assert seen == [5, 2000, 555]
    assert third.walked_past == 100
    await live.manual.worker.row_services.stop()


@pytest.mark.asyncio
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("order_by", "anywhere"), [("due_at", False), ("due_at desc", False), ("id", True)])
async def test_a_sweep_knows_whether_rows_become_due_in_the_middle(
    live: Field, monkeypatch: pytest.MonkeyPatch, order_by: str, anywhere: bool
) -> None:
    asked: list[bool] = []

    def noted(every: timedelta, known: Gate, *, anywhere: bool) -> bool:
        asked.append(anywhere)
        return True

    live.fix(lambda row: To("done"), due_at="due_at", order_by=order_by, run_at_start=True)
    await live.put(60)
    await resting(live, 60)
    monkeypatch.setattr(walker, "is_walk_due", noted)
    member = await live.gather()
    for _ in range(2):
        member.timetable.due = 0.0
        await member.run_once()
    assert asked == [anywhere]


@pytest.mark.asyncio
async def test_a_sweep_by_hand_walks_past_all_rows(live: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (claiming, store_rows):
        monkeypatch.setattr(module, "MIN_WINDOW", 10)
    live.fix(lambda row: To("done"))
    await live.put(60)
    await resting(live, 50)
    assert (await live.sweep()).changed == 10


@pytest.mark.asyncio
@pytest.mark.parametrize("rows", [0, 5])
async def test_a_sweep_that_finds_nothing_sends_three_statements(
    live: Field, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.fix(lambda row: To("done"), run_at_start=True)
    await live.put(rows)
    await resting(live, rows)
    member = await live.gather()
    sent: list[str] = []
    line = live.manual.worker.row_services.connections[0]
    for name in ("fetch", "fetch_kept", "fetch_steered"):
        real = getattr(line, name)

        async def counted(*args: Any, name: str = name, real: Any = real) -> Any:
            sent.append(name)
            return await real(*args)

        monkeypatch.setattr(line, name, counted)
    await member.run_once()
    assert sent == ["fetch_kept", "fetch_steered", "fetch_kept"], "the gate, a probe, and a note"
