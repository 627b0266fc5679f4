"""Planning and changing schedules in the database, with time as an argument."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic, process_time
from typing import Any

import pytest
from psycopg import AsyncConnection

from tests.schedules.moments import utc, written
from tests.store.desk import Desk
from tests.support.interleave import OneConnection, Side, interleave, overlap
from trueup import App
from trueup.errors import ConfigError, NotFound
from trueup.operate.audit import audit
from trueup.schedules import Cron, Every, Once
from trueup.schedules.decide import REPLACED, decide, delay
from trueup.schedules.overlap import Overlap, RunCounts
from trueup.schedules.policy import SchedulePolicy
from trueup.schedules.spec import Spec
from trueup.store.db.load import Statements
from trueup.store.history import Kept
from trueup.store.planning import Planned, StaleSchedule, UnreadableSchedule
from trueup.store.schedules import Entry, Schedules
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

MINUTELY = Cron("* * * * *")
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
KEPT = Kept(done=DAY, cancelled=DAY, dead=DAY, ticks=7 * DAY, sweeps=DAY)


def entry(name: str = "nightly", spec: Spec = MINUTELY, *, origin: Any = "people", **policy: Any) -> Entry:
    return Entry(name, origin, spec, SchedulePolicy(**policy), "send", "default", "default", 4)


async def ledger(desk: Desk, name: str = "nightly") -> list[tuple[str, int, str, str | None]]:
    """The ticks of a schedule as (due at, how many, outcome, reason), oldest first."""
    query = "select due_at, count, outcome, reason from trueup.ticks where schedule = %s order by due_at"
    async with desk.store.pool.use() as connection:
        rows = await (await connection.execute(query, [name])).fetchall()
    return [(written([due_at])[0], count, outcome, reason) for due_at, count, outcome, reason in rows]


async def outcomes(desk: Desk, name: str = "nightly") -> Counter[str]:
    """How many ticks ended as fired, or skipped for which reason."""
    found = Counter[str]()
    for _, count, outcome, reason in await ledger(desk, name):
        found[outcome if outcome == "fired" else str(reason)] += count
    return found


async def jobs_of(desk: Desk, name: str = "nightly") -> list[datetime]:
    """The due moments of a schedule's unfinished jobs."""
    async with desk.store.pool.use() as connection:
        cursor = await connection.execute(b"select due_at from trueup.jobs where schedule = %s order by due_at", [name])
        return [due_at for (due_at,) in await cursor.fetchall()]


async def plan_all(store: Store) -> None:
    for _ in range(1_000):
        if not (await store.schedules.plan()).more:
            return
    raise AssertionError("planning does not come to an end")


async def within(side: Side) -> Schedules:
    """Schedules in a transaction that is open already, so that what they do stays uncommitted."""
    await side.connection.execute("select")
    return Schedules(OneConnection(side.connection), side.statements)


async def planning(side: Side) -> Planned:
    return await (await within(side)).plan()


# -- firing ---------------------------------------------------------------------------------------------------------------


async def test_a_tick_fires_once_when_it_is_due_and_not_before(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.schedules.put(entry())
    assert await store.schedules.next_in() == 60
    clock.advance(seconds=59)
    assert await store.schedules.plan() == Planned()
    clock.advance(seconds=1)
    assert await store.schedules.next_in() == 0
    assert await store.schedules.plan() == Planned(fired=1)
    assert await store.schedules.plan() == Planned()
    assert await ledger(desk) == [("2026-06-01T12:01", 1, "fired", None)]
    assert await jobs_of(desk) == [NOON + MINUTE]
    assert await store.schedules.next_in() == 60


async def test_a_tick_and_its_job_point_at_each_other(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=1)
    await store.schedules.plan()
    job = await desk.row(await desk.scalar("select job_id from trueup.ticks"))
    assert (job["kind"], job["state"], job["run_at"], job["max_attempts"]) == ("send", "queued", NOON + MINUTE, 4)
    (claimed,) = await desk.claim(await desk.worker())
    assert (claimed.schedule, claimed.due_at) == ("nightly", NOON + MINUTE)


async def test_nothing_planned_means_nothing_to_wait_for(store: Store) -> None:
    assert await store.schedules.next_in() is None
    assert await store.schedules.plan() == Planned()


async def test_schedules_due_at_the_same_moment_are_all_fired(desk: Desk, store: Store, clock: ManualClock) -> None:
    for name in ("a", "b", "c"):
        await store.schedules.put(entry(name))
    clock.advance(minutes=1)
    assert await store.schedules.plan() == Planned(fired=3)
    assert [await jobs_of(desk, name) for name in "abc"] == [[NOON + MINUTE]] * 3


async def test_a_single_tick_fires_and_nothing_follows(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.schedules.put(entry(spec=Once(NOON + HOUR)))
    clock.advance(days=2)
    assert await store.schedules.plan() == Planned(fired=1, finished=("nightly",))
    stored = await store.schedules.get("nightly")
    assert (stored.state, stored.next_due_at) == ("finished", None)
    clock.advance(days=2)
    assert await store.schedules.plan() == Planned()


async def test_jitter_moves_the_run_and_not_the_tick(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.schedules.put(entry(jitter=HOUR))
    clock.advance(minutes=1)
    await store.schedules.plan()
    assert [due_at for due_at, *_ in await ledger(desk)] == ["2026-06-01T12:01"]
    run_at = await desk.scalar("select run_at from trueup.jobs")
    assert run_at == NOON + MINUTE + delay("nightly", NOON + MINUTE, HOUR)
    assert run_at > NOON + MINUTE


# -- missed ticks -----------------------------------------------------------------------------------------------------------

LAST_FIRED, BACK = utc("2026-11-14T03:00"), utc("2026-11-15T00:55:30")


async def down_for_a_day(store: Store, clock: ManualClock, **policy: Any) -> None:
    clock.advance(seconds=(LAST_FIRED - MINUTE - clock.now()).total_seconds())
    await store.schedules.put(entry(spec=Cron("*/5 * * * *"), overlap="allow", **policy))
    clock.advance(minutes=1)
    assert await store.schedules.plan() == Planned(fired=1)
    clock.advance(seconds=(BACK - LAST_FIRED).total_seconds())
    await plan_all(store)


@pytest.mark.parametrize(
    ("policy", "counts"),
    [
        ({"missed": "latest"}, {"fired": 1, "coalesced": 262}),
        ({"missed": "all"}, {"fired": 263}),
        ({"missed": "all", "catch_up": HOUR}, {"fired": 12, "outside catch_up": 251}),
        ({"missed": "skip"}, {"fired": 1, "missed": 262}),
        ({"missed": "skip", "grace": timedelta(seconds=29)}, {"missed": 263}),
        ({"missed": "skip", "grace": HOUR}, {"fired": 12, "missed": 251}),
    ],
)
async def test_after_a_day_down_every_missed_tick_has_its_verdict(
    desk: Desk, store: Store, clock: ManualClock, policy: dict[str, Any], counts: dict[str, int]
) -> None:
    await down_for_a_day(store, clock, **policy)
    found = await outcomes(desk)
    found["fired"] -= 1  # the one before the downtime
    assert +found == counts
    jobs = await jobs_of(desk)
    assert jobs[0] == LAST_FIRED
    assert len(jobs) == 1 + counts.get("fired", 0)
    assert (await store.schedules.get("nightly")).next_due_at == utc("2026-11-15T01:00")


async def test_a_row_of_skipped_ticks_says_which_it_stands_for(desk: Desk, store: Store, clock: ManualClock) -> None:
    await down_for_a_day(store, clock)
    assert await ledger(desk) == [
        ("2026-11-14T03:00", 1, "fired", None),
        ("2026-11-14T03:05", 251, "skipped", "coalesced"),
        ("2026-11-15T00:00", 11, "skipped", "coalesced"),
        ("2026-11-15T00:55", 1, "fired", None),
    ]
    last = "select array_agg(last_due_at order by due_at) from trueup.ticks where outcome = 'skipped'"
    assert await desk.scalar(last) == [utc("2026-11-14T23:55"), utc("2026-11-15T00:50")]


@pytest.mark.parametrize(
    ("declared", "back", "ticks"),
    [
        ("2026-03-28T00:00", "2026-03-30T12:00", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
        ("2026-10-24T00:00", "2026-10-26T12:00", ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]),
    ],
)
async def test_clocks_that_change_during_the_downtime_lose_and_double_nothing(
    desk: Desk, store: Store, clock: ManualClock, declared: str, back: str, ticks: list[str]
) -> None:
    clock.advance(seconds=(utc(declared) - NOON).total_seconds())
    policy = {"missed": "all", "catch_up": 7 * DAY, "overlap": "allow"}
    await store.schedules.put(entry(spec=Cron("30 2 * * *", "Europe/Berlin"), **policy))
    clock.advance(seconds=(utc(back) - utc(declared)).total_seconds())
    await plan_all(store)
    assert [due_at for due_at, *_ in await ledger(desk)] == ticks


async def test_a_long_downtime_is_planned_in_many_short_passes(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.schedules.put(entry(missed="all", catch_up=10 * DAY, overlap="allow"))
    clock.advance(days=2)
    first = await store.schedules.plan()
    assert (first.fired, first.more) == (1_000, True)
    await plan_all(store)
    assert await outcomes(desk) == {"fired": 2 * 24 * 60}


# -- overlap ------------------------------------------------------------------------------------------------------------------


async def second_tick(desk: Desk, store: Store, clock: ManualClock, **policy: Any) -> None:
    """The first tick's run is at work when the second and third are due."""
    await store.schedules.put(entry(**policy))
    clock.advance(minutes=1)
    await store.schedules.plan()
    assert len(await desk.claim(await desk.worker())) == 1
    for _ in range(2):
        clock.advance(minutes=1)
        await store.schedules.plan()


@pytest.mark.parametrize(
    ("overlap", "rest", "waiting"),
    [
        ("skip", [("skipped", "still running"), ("skipped", "still running")], 0),
        ("queue_one", [("fired", None), ("skipped", "one is waiting already")], 1),
        ("queue_all", [("fired", None), ("fired", None)], 2),
        ("allow", [("fired", None), ("fired", None)], 2),
        ("cancel_running", [("fired", None), ("fired", None)], 1),
    ],
)
async def test_ticks_that_meet_a_run_still_at_work(
    desk: Desk, store: Store, clock: ManualClock, overlap: Overlap, rest: list[tuple[str, str | None]], waiting: int
) -> None:
    await second_tick(desk, store, clock, overlap=overlap)
    assert [row[2:] for row in await ledger(desk)] == [("fired", None), *rest]
    assert await desk.scalar("select count(*) from trueup.jobs where state = 'queued'") == waiting


async def test_cancel_running_asks_the_one_at_work_and_cancels_the_one_that_waits(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await second_tick(desk, store, clock, overlap="cancel_running")
    asked = "select cancel_requested_at from trueup.jobs where state = 'running'"
    assert await desk.scalar(asked) == NOON + 2 * MINUTE
    assert await jobs_of(desk) == [NOON + MINUTE, NOON + 3 * MINUTE]
    assert await desk.scalar("select (state, reason, due_at)::text from trueup.history") == (
        '(cancelled,"replaced by the next tick","2026-06-01 12:02:00+00")'
    )


async def test_of_several_ticks_due_together_cancel_running_fires_the_last(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry(spec=Every("10s"), overlap="cancel_running"))
    clock.advance(seconds=30)
    assert await store.schedules.plan() == Planned(fired=1, skipped=2)
    assert [row[2:] for row in await ledger(desk)] == [
        ("skipped", REPLACED),
        ("skipped", REPLACED),
        ("fired", None),
    ]
    assert await jobs_of(desk) == [NOON + timedelta(seconds=30)]


# -- putting and changing -----------------------------------------------------------------------------------------------------


async def test_the_same_schedule_again_changes_nothing(desk: Desk, store: Store, clock: ManualClock) -> None:
    assert await store.schedules.put(entry())
    before = await store.schedules.get("nightly")
    clock.advance(seconds=30)
    assert not await store.schedules.put(entry())
    assert await store.schedules.get("nightly") == before
    assert await desk.scalar("select count(*) from trueup.schedule_versions") == 1


async def test_a_changed_schedule_first_settles_what_was_due_before(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=2, seconds=30)
    assert await store.schedules.put(entry(spec=Every("10s")))
    assert await ledger(desk) == [
        ("2026-06-01T12:01", 1, "skipped", "coalesced"),
        ("2026-06-01T12:02", 1, "fired", None),
    ]
    stored = await store.schedules.get("nightly")
    assert (stored.version, stored.next_due_at) == (2, NOON + timedelta(minutes=2, seconds=40))
    assert await desk.scalar("select max(version) from trueup.ticks") == 1


async def test_another_policy_keeps_the_next_tick(store: Store, clock: ManualClock) -> None:
    await store.schedules.put(entry())
    clock.advance(seconds=30)
    assert await store.schedules.put(entry(missed="all"))
    stored = await store.schedules.get("nightly")
    assert (stored.version, stored.next_due_at, stored.decided_until) == (2, NOON + MINUTE, NOON)


async def test_five_workers_that_declare_at_once_make_one_version(desk: Desk, store: Store) -> None:
    changed = await asyncio.gather(*(store.schedules.put(entry(origin="code")) for _ in range(5)))
    assert sorted(changed) == [False] * 4 + [True]
    assert await desk.scalar("select count(*) from trueup.schedule_versions") == 1


async def test_two_releases_that_disagree_take_turns_and_lose_no_tick(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    for turn in range(6):
        await store.schedules.put(entry(spec=Every("1m") if turn % 2 else MINUTELY, overlap="allow"))
        clock.advance(seconds=30)
        await store.schedules.plan()
    assert [due_at for due_at, *_ in await ledger(desk)] == [f"2026-06-01T12:0{minute}" for minute in (1, 2, 3)]
    assert (await store.schedules.get("nightly")).version == 6


async def test_a_retired_schedule_does_not_fire(store: Store, clock: ManualClock) -> None:
    for name in ("kept", "gone"):
        await store.schedules.put(entry(name, origin="code"))
    await store.schedules.put(entry("made by people"))
    assert await store.schedules.retire(["gone"], "no longer declared") == {"gone"}
    stored = await store.schedules.get("gone")
    assert (stored.state, stored.note) == ("retired", "no longer declared")
    clock.advance(minutes=1)
    assert (await store.schedules.plan()).fired == 2


async def test_a_retired_schedule_declared_again_begins_anew(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.schedules.put(entry(origin="code"))
    await store.schedules.retire(["nightly"], "gone")
    clock.advance(hours=5, seconds=30)
    assert await store.schedules.put(entry(origin="code"))
    stored = await store.schedules.get("nightly")
    assert (stored.state, stored.note, stored.version) == ("active", None, 3)
    assert stored.next_due_at == NOON + 5 * HOUR + MINUTE
    clock.advance(seconds=30)
    await store.schedules.plan()
    assert await ledger(desk) == [("2026-06-01T17:01", 1, "fired", None)]


async def test_nothing_fires_while_paused_and_resuming_does_not_make_up(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry(missed="all"))
    clock.advance(minutes=1)
    assert await store.schedules.pause(["nightly", "unknown"], "an incident") == {"nightly"}
    assert await store.schedules.pause(["nightly"], "again") == set()
    assert await ledger(desk) == [("2026-06-01T12:01", 1, "fired", None)], "what was due before is settled"
    clock.advance(hours=1)
    assert await store.schedules.next_in() is None
    assert await store.schedules.plan() == Planned()
    assert await store.schedules.resume(["nightly"]) == {"nightly"}
    assert await store.schedules.plan() == Planned()
    assert await store.schedules.next_in() == 60
    stored = await store.schedules.get("nightly")
    assert (stored.state, stored.note) == ("active", None)


async def test_a_paused_schedule_that_is_changed_stays_paused_and_keeps_its_note(
    store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    await store.schedules.pause(["nightly"], "an incident")
    assert await store.schedules.put(entry(spec=Every("10s")))
    clock.advance(hours=1)
    assert await store.schedules.plan() == Planned()
    stored = await store.schedules.get("nightly")
    assert (stored.state, stored.note) == ("paused", "an incident")


async def test_a_deleted_schedule_settles_what_was_due_and_fires_no_more(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=1)
    assert await store.schedules.delete("nightly")
    assert not await store.schedules.delete("nightly")
    clock.advance(minutes=5)
    assert await store.schedules.plan() == Planned()
    assert await ledger(desk) == [("2026-06-01T12:01", 1, "fired", None)]
    with pytest.raises(NotFound, match="nightly"):
        await store.schedules.get("nightly")


async def test_a_schedule_that_code_declares_cannot_be_deleted(store: Store) -> None:
    await store.schedules.put(entry(origin="code"))
    assert not await store.schedules.delete("nightly")


async def test_a_deleted_name_can_be_used_again_and_goes_on_counting_versions(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=1)
    await store.schedules.delete("nightly")
    assert await store.schedules.put(entry())
    assert (await store.schedules.get("nightly")).version == 3
    assert await store.schedules.plan() == Planned(), "the tick of this very moment was fired before"
    assert len(await ledger(desk)) == 1


# -- by hand -------------------------------------------------------------------------------------------------------------------


async def test_a_trigger_fires_at_once_whatever_the_schedule_says(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.schedules.put(entry())
    await store.schedules.pause(["nightly"], "an incident")
    clock.advance(seconds=7)
    job_id = await store.schedules.trigger("nightly")
    assert job_id is not None
    assert await desk.state(job_id) == "queued"
    assert await ledger(desk) == [("2026-06-01T12:00:07", 1, "fired", "triggered")]
    assert await store.schedules.trigger("nightly") is None, "that moment has its tick"
    with pytest.raises(NotFound, match="unknown"):
        await store.schedules.trigger("unknown")


async def test_a_backfill_fires_each_tick_once_however_often_it_is_asked(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    moments = [NOON - n * MINUTE for n in (3, 2, 1)]
    assert await store.schedules.backfill("nightly", moments[:2]) == 2
    assert await store.schedules.backfill("nightly", moments) == 1
    assert await store.schedules.backfill("nightly", moments) == 0
    assert await store.schedules.backfill("nightly", []) == 0
    assert await jobs_of(desk) == moments
    assert (await store.schedules.get("nightly")).decided_until == NOON, "the watermark is the planner's"


async def test_a_backfill_of_a_tick_to_come_is_refused(desk: Desk, store: Store) -> None:
    await store.schedules.put(entry())
    with pytest.raises(ConfigError, match="is in the future"):
        await store.schedules.backfill("nightly", [NOON, NOON + MINUTE])
    assert await ledger(desk) == []


async def test_a_run_that_is_dropped_marks_its_own_tick_as_skipped(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=1)
    await store.schedules.plan()
    holder = await desk.worker()
    (job,) = await desk.claim(holder)
    assert await store.jobs.drop(holder, [job], ["dropped"], ["held elsewhere"]) == {job.id}
    assert await ledger(desk) == [("2026-06-01T12:01", 1, "skipped", "held elsewhere")]
    assert await store.jobs.drop(holder, [job], ["dropped"], ["another reason"]) == set()


@pytest.mark.parametrize("lost", ["rescued", "run by another", "another term"])
async def test_a_holder_that_lost_its_claim_does_not_mark_the_tick_as_skipped(
    desk: Desk, store: Store, clock: ManualClock, lost: str
) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=1)
    await store.schedules.plan()
    holder = await desk.worker()
    (job,) = await desk.claim(holder)
    if lost == "another term":
        job = replace(job, term=job.term - 1)
    else:
        clock.advance(minutes=1)
        await store.jobs.rescue()
        if lost == "run by another":
            other = await desk.worker()
            (again,) = await desk.claim(other)
            assert await store.jobs.complete(other, [again], [None]) == {job.id}
    assert await store.jobs.drop(holder, [job], ["dropped"], ["held elsewhere"]) == set()
    assert [row[2] for row in await ledger(desk)] == ["fired"]
    if lost == "run by another":
        assert await store.schedules.backfill("nightly", [NOON + MINUTE]) == 0, "it has run, and does not run twice"


# -- what this release cannot read ------------------------------------------------------------------------------------------


async def make_unreadable(desk: Desk, name: str = "nightly") -> None:
    await desk.scalar("""update trueup.schedules set spec = '{"kind": "lunar"}' where name = %s""", name)


async def test_a_schedule_of_a_newer_release_is_left_to_it_and_blocks_no_other(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    for name in ("lunar", "other"):
        await store.schedules.put(entry(name))
    await make_unreadable(desk, "lunar")
    clock.advance(minutes=1)
    planned = await store.schedules.plan()
    (found,) = planned.unreadable
    assert (found.name, found.version) == ("lunar", 1)
    assert "lunar" in found.error
    assert (planned.fired, planned.more) == (1, False)
    assert await store.schedules.plan([found]) == Planned(), "it is said once"
    assert await store.schedules.next_in([found]) == 60, "and not waited for"
    assert await store.schedules.next_in() == 0
    assert await jobs_of(desk, "lunar") == []


async def test_a_new_version_of_an_unreadable_schedule_is_read_again(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    await make_unreadable(desk)
    known = UnreadableSchedule("nightly", 1, "lunar")
    await store.schedules.put(entry(spec=Every("1m")))
    clock.advance(minutes=1)
    assert (await store.schedules.plan([known])).fired == 1


async def test_an_unreadable_schedule_can_be_paused_and_retired_and_not_resumed(desk: Desk, store: Store) -> None:
    await store.schedules.put(entry())
    await make_unreadable(desk)
    assert await store.schedules.pause(["nightly"], "an incident") == {"nightly"}
    with pytest.raises(ConfigError, match="lunar"):
        await store.schedules.resume(["nightly"])
    assert await store.schedules.retire(["nightly"], "gone") == {"nightly"}


# -- several at once --------------------------------------------------------------------------------------------------------


async def test_a_second_planner_does_nothing_while_the_first_is_at_it(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=1)
    first, second = await overlap(
        store,
        hold=planning,
        then=planning,
    )
    assert first == Planned(fired=1)
    assert second.value == Planned(held=False)
    assert len(await jobs_of(desk)) == 1


async def test_a_planner_that_dies_before_it_commits_leaves_the_tick_to_the_next(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=1)
    planned, _ = await overlap(
        store,
        hold=planning,
        then=planning,
        commit=False,
    )
    assert planned.fired == 1
    assert await ledger(desk) == []
    assert await store.schedules.plan() == Planned(fired=1)
    assert len(await jobs_of(desk)) == 1


async def test_an_edit_waits_for_the_planner_and_finds_the_tick_fired(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=1)

    async def editing(side: Side) -> bool:
        return await (await within(side)).put(entry(spec=Every("30s")))

    planned, edited = await interleave(store, hold=planning, then=editing)
    assert planned == Planned(fired=1)
    assert edited.value
    assert await ledger(desk) == [("2026-06-01T12:01", 1, "fired", None)]


async def test_a_planner_passes_over_a_schedule_that_is_being_changed(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    for name in ("changing", "other"):
        await store.schedules.put(entry(name))
    clock.advance(minutes=1)

    async def pausing(side: Side) -> set[str]:
        return await (await within(side)).pause(["changing"], "an incident")

    paused, planned = await overlap(store, hold=pausing, then=planning)
    assert paused == {"changing"}
    assert planned.value == Planned(fired=1)
    assert await jobs_of(desk, "other") == [NOON + MINUTE]
    assert await jobs_of(desk, "changing") == [NOON + MINUTE], "fired by whoever paused it, before the pause"


async def test_a_version_begins_after_the_wait_for_the_row_and_not_before(app: App) -> None:
    """Otherwise it would begin before a tick that was fired, meanwhile, under the version before it."""
    store = await app.open()
    desk = Desk(store)
    await store.schedules.put(entry())
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with await AsyncConnection.connect(store.url) as holder, asyncio.timeout(10):
        await holder.execute("select from trueup.schedules for update")
        edit = asyncio.create_task(store.schedules.put(entry(spec=Every("7s"))))
        while not await desk.scalar(waiting):
            await asyncio.sleep(0.005)
        released_at = await desk.scalar("select clock_timestamp()")
        await holder.commit()
        assert await edit
    assert (await store.schedules.get("nightly")).changed_at > released_at


async def test_a_planner_that_read_the_row_before_an_edit_changes_nothing(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    clock.advance(minutes=1)
    due = {
        "now": clock.now(),
        "names": None,
        "most": 10,
        "unreadable_names": [],
        "unreadable_versions": [],
    }
    (stale,) = await store.pool.fetch(store.statements["schedules/due"], due)
    decision = decide("nightly", MINUTELY, SchedulePolicy(), stale[5], clock.now(), RunCounts())
    assert decision.verdicts[0].fired
    await store.schedules.pause(["nightly"], "an incident")
    await desk.scalar("delete from trueup.ticks")  # pruned: only the watermark and the version are left to tell
    before = await store.schedules.get("nightly")
    with pytest.raises(StaleSchedule):
        async with store.pool.transaction() as connection:
            await store.schedules._write(connection, [(stale, decision)], clock.now())
    assert await ledger(desk) == []
    assert len(await jobs_of(desk)) == 1
    assert await store.schedules.get("nightly") == before


# -- the watermark -------------------------------------------------------------------------------------------------------------


async def test_the_watermark_never_goes_back_with_the_clock(desk: Desk, store: Store, clock: ManualClock) -> None:
    await store.schedules.put(entry(overlap="allow"))
    clock.advance(hours=1)
    await store.schedules.plan()
    before = await store.schedules.get("nightly")
    clock.advance(minutes=-30)
    assert await store.schedules.plan() == Planned()
    await store.schedules.put(entry(spec=Every("1m"), overlap="allow"))
    assert await store.schedules.plan() == Planned()
    assert (await store.schedules.get("nightly")).decided_until == before.decided_until
    clock.advance(minutes=31)
    assert await store.schedules.plan() == Planned(fired=1)
    assert max(await jobs_of(desk)) == NOON + HOUR + MINUTE


async def test_a_lagging_planner_cannot_fire_a_tick_again_after_its_row_was_pruned(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry(missed="all", catch_up=30 * DAY))
    clock.advance(minutes=1)
    assert await store.schedules.plan() == Planned(fired=1)
    await desk.scalar("delete from trueup.jobs")
    await store.history.prune(KEPT)  # nothing is removed before two passes agree on the time
    clock.advance(days=8)
    await store.schedules.pause(["nightly"], "so that nothing new is due")
    await store.schedules.resume(["nightly"])
    await store.history.prune(KEPT)
    left = await desk.scalar("select count(*) from trueup.ticks where due_at <= %s", NOON + HOUR)
    assert left == 0, "the ledger of that day is gone"
    await desk.scalar("delete from trueup.jobs")
    lagging = ManualClock(NOON + MINUTE)
    late = Schedules(store.pool, Statements("trueup", clock=lagging, aging=store.statements.aging))
    assert await late.plan() == Planned()
    assert await late.put(entry(spec=Every("1m"))), "not even by declaring it anew"
    assert await late.plan() == Planned()
    assert await jobs_of(desk) == []


async def test_the_ledger_is_kept_for_its_time_and_then_dropped_by_the_day(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.history.prune(KEPT)
    await store.schedules.put(entry())
    clock.advance(minutes=1)
    await store.schedules.plan()
    assert await desk.scalar("select tableoid::regclass::text from trueup.ticks") == "trueup.ticks_20260601"
    clock.advance(days=7)
    assert "ticks_20260601" not in (await store.history.prune(KEPT)).dropped
    clock.advance(days=1)
    assert "ticks_20260601" in (await store.history.prune(KEPT)).dropped
    assert await ledger(desk) == []
    assert (await store.schedules.get("nightly")).decided_until == NOON + MINUTE


@pytest.mark.parametrize("where", ["in their days", "in the catch-all"])
async def test_the_audit_finds_no_gap_at_the_edge_of_what_is_kept(
    desk: Desk, store: Store, clock: ManualClock, where: str
) -> None:
    """Ticks that were skipped in a row go with the rest of their day, not with the first of them."""
    await store.schedules.put(entry(spec=Cron("0 * * * *")))
    clock.advance(days=4, hours=5)
    if where == "in their days":
        for day in range(5):
            made = (NOON + day * DAY).date()
            await desk.scalar(
                f"create table trueup.ticks_{made:%Y%m%d} partition of trueup.ticks for values from ('{made} 00:00Z')"
                f" to ('{made + DAY} 00:00Z')"
            )
    while (await store.schedules.plan()).more:
        pass
    for _ in range(8):
        clock.advance(hours=26)
        while (await store.schedules.plan()).more:
            pass
        await store.history.prune(KEPT)
        assert (await audit(store.schedules, 30 * DAY, KEPT.ticks)).clean
    assert await desk.scalar("select min(due_at) > %s from trueup.ticks", NOON + DAY)


# -- versions ------------------------------------------------------------------------------------------------------------------


async def versions(desk: Desk, name: str = "nightly") -> list[int]:
    query = "select coalesce(array_agg(version order by version), '{}') from trueup.schedule_versions where name = %s"
    return list(await desk.scalar(query, name))


async def expire_versions(store: Store) -> bool:
    """One batch. False when nothing was left to do."""
    keep = {"now": store.clock.now(), "keep": KEPT.ticks.total_seconds()}
    return bool(await store.pool.fetch(store.statements["history/expire_versions"], keep))


@pytest.mark.slow
async def test_versions_go_when_no_tick_that_is_kept_belongs_to_them(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    for minutes in range(1, 5):  # of days 0, 2, 4 and 6
        await store.schedules.put(entry(spec=Every(timedelta(minutes=minutes))))
        clock.advance(days=2)
    await store.history.prune(KEPT)
    assert await versions(desk) == [1, 2, 3, 4], "day 8: version 1 reigned at the beginning of day 1"
    clock.advance(hours=25)
    await store.history.prune(KEPT)
    assert await versions(desk) == [1, 2, 3, 4], "the day of the ledger that version 1 ended on is still there"
    clock.advance(days=1)
    await store.history.prune(KEPT)
    assert await versions(desk) == [2, 3, 4]
    clock.advance(days=400)
    await store.history.prune(KEPT)
    assert await versions(desk) == [4], "what holds now is kept however old it is"
    assert (await store.schedules.get("nightly")).version == 4
    await store.schedules.pause(["nightly"], "why")
    assert await versions(desk) == [4, 5]


async def test_what_the_audit_says_does_not_depend_on_versions_that_are_gone(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    chance = random.Random(7)
    names = ("a", "b", "c", "d")
    for day in range(24):
        for name in names if day == 0 else [name for name in names if chance.random() < 0.3]:
            await store.schedules.put(entry(name, Every(timedelta(minutes=chance.choice((30, 60, 90, 120))))))
            if chance.random() < 0.4:
                await store.schedules.pause([name], "why")
            elif chance.random() < 0.5:
                await store.schedules.resume([name])
            elif chance.random() < 0.3:
                await store.schedules.delete(name)
        clock.advance(hours=chance.randrange(1, 36))
        await plan_all(store)
        if day % 6 == 5:
            before = await audit(store.schedules, 100 * DAY, KEPT.ticks)
            count = await desk.scalar("select count(*) from trueup.schedule_versions")
            while await expire_versions(store):  # and no tick: a row for many would go by the first of them
                pass
            assert await audit(store.schedules, 100 * DAY, KEPT.ticks) == before
            assert before.clean
            assert sum(findings.expected for findings in before.schedules) > 100
            assert day < 12 or await desk.scalar("select count(*) from trueup.schedule_versions") < count


async def test_a_deleted_schedule_leaves_nothing_behind_once_its_ticks_are_gone(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    await store.schedules.delete("nightly")
    clock.advance(days=7)
    await store.history.prune(KEPT)
    await store.schedules.put(entry())
    assert await versions(desk) == [1, 2, 3], "numbers go on as long as the last one is on record"
    await store.schedules.delete("nightly")
    clock.advance(days=9)
    await store.history.prune(KEPT)
    assert await versions(desk) == []
    await store.schedules.put(entry())
    assert await versions(desk) == [1]
    clock.advance(minutes=1)
    assert (await store.schedules.plan()).fired == 1


async def test_no_batch_takes_the_end_of_a_schedule_before_what_it_ended(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.schedules.put(entry())
    await desk.scalar(
        "insert into trueup.schedule_versions"
        " select name, n, since, case when n = 12000 then 'deleted' else state end, spec"
        " from trueup.schedule_versions, generate_series(2, 12000) as n"
    )
    await desk.scalar("delete from trueup.schedules")
    clock.advance(days=9)
    left = [12_000]
    while await expire_versions(store):
        left.append(await desk.scalar("select count(*) from trueup.schedule_versions"))
        assert left[-1] == 0 or await desk.scalar("select max(version) from trueup.schedule_versions") == 12_000
    assert left == [12_000, 7_000, 2_000, 1, 0]


# -- many ----------------------------------------------------------------------------------------------------------------------

MANY = """
insert into trueup.schedules (name, origin, spec, policy, kind, queue, lane, max_attempts, next_due_at, decided_until, created_at, changed_at)
select 'many ' || n, 'people', jsonb_build_object('kind', 'cron', 'expr', %s::text, 'tz', 'UTC', 'dst', 'debian'),
       '{}', 'send', 'default', 'default', 4, %s, now.at, now.at, now.at
  from generate_series(1, %s) as n, (select %s::timestamptz as at) as now
"""


@pytest.mark.slow
async def test_ten_thousand_schedules_due_in_the_same_second_are_planned_in_seconds(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await desk.scalar(MANY, "0 13 * * *", NOON + HOUR, 10_000, NOON)
    clock.advance(hours=1)
    began, passes, longest = monotonic(), 0, 0.0
    more = True
    while more:
        pass_began = monotonic()
        more = (await store.schedules.plan()).more
        passes, longest = passes + 1, max(longest, monotonic() - pass_began)
    took = monotonic() - began
    print(f"10,000 schedules due at once: {took:.2f} s in {passes} passes, the longest {longest:.2f} s")
    assert await desk.scalar("select count(*) from trueup.ticks where outcome = 'fired'") == 10_000
    assert await desk.scalar("select count(distinct (schedule, due_at)) from trueup.jobs") == 10_000
    assert took < 60  # three on a quiet machine; what grows with the square would take minutes
    assert longest < 5


@pytest.mark.slow
async def test_many_schedules_after_a_long_downtime_are_planned_in_short_transactions(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    """Deciding about all of them in one would never end: the server hangs up on a transaction that idles for two seconds."""
    await desk.scalar(MANY, "* * * * *", NOON + MINUTE, 20, NOON)
    clock.advance(days=5)
    longest, more = 0.0, True
    while more:
        began = process_time()  # its own, as the machine may be busy with others
        more = (await store.schedules.plan()).more
        longest = max(longest, process_time() - began)
    assert longest < 1.5
    assert await desk.scalar("select sum(count) from trueup.ticks") == 20 * 5 * 24 * 60


async def test_a_trigger_in_the_moment_in_which_its_day_is_attached_fires_once(store: Store) -> None:
    """The first worker of a day makes its partitions; whoever was on the way to the catch-all is told to go elsewhere."""
    desk = Desk(store)
    await store.schedules.put(entry())
    async with await AsyncConnection.connect(store.url) as attaching:
        await attaching.execute(
            "create table trueup.a_day (like trueup.ticks including defaults including constraints)"
        )
        await attaching.execute(
            "alter table trueup.ticks attach partition trueup.a_day for values from ('2026-06-01') to ('2026-06-02')"
        )
        triggered = asyncio.create_task(store.schedules.trigger("nightly"))
        await until_one_waits(store)
        await attaching.commit()
    assert await triggered is not None
    assert await outcomes(desk) == {"fired": 1}


async def until_one_waits(store: Store) -> None:
    query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    deadline = monotonic() + 10
    async with await AsyncConnection.connect(store.url, autocommit=True) as watcher:
        while await (await watcher.execute(query)).fetchone() != (1,):
            assert monotonic() < deadline, "nobody waits"
            await asyncio.sleep(0.005)
