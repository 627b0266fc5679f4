"""The report after a downtime, on a clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.store.desk import LEASE, Desk
from trueup import App, ConfigError
from trueup.operate.recovery import Backlog, ReconcilerRecovery, Recovery, ScheduleRecovery, short
from trueup.reconcile.lateness import Lateness
from trueup.schedules import Cron
from trueup.store.workers import Downtime, Identity
from trueup.testing.clock import NOON, ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

HOURLY = Cron("0 * * * *")
QUARTERLY = Cron("*/15 * * * *")


class House:
    """An App with a job to schedule, and what happens to its fleet."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self.desk = Desk(app.store)

        @app.job
        async def report() -> None: ...

        self.report = report

    async def hourly(self, name: str = "reports", spec: Cron = HOURLY, **policy: Any) -> None:
        await self.app.schedules.create(name, spec, self.report.call(), **policy)

    async def plan(self) -> None:
        while (await self.app.store.schedules.plan()).more:
            pass

    async def start(self) -> None:
        """A worker begins, and nothing more is heard of it."""
        await self.app.store.workers.register(Identity(uuid4(), "host", 1, None, ("default",), 10), LEASE)

    async def down_for(self, **duration: float) -> None:
        """From now on nobody is there, for so long; then a worker begins and plans."""
        await self.start()
        self.clock.advance(**duration)
        await self.start()
        await self.plan()

    async def run_jobs(self) -> None:
        worker = ManualWorker(self.app)
        await worker.begin()
        await worker.run_pending()
        await worker.end()

    async def reconciler(self, name: str = "observe", **columns: Any) -> None:
        await self.desk.scalar(
            "insert into trueup.reconcilers (name, place, declared, declared_at, state, paused_until) values (%s, 'payments', '{}', %s, %s, %s)",
            name,
            self.clock.now(),
            columns.get("state", "active"),
            columns.get("paused_until"),
        )

    async def sweep(
        self,
        lateness: Sequence[float] = (),
        *,
        name: str = "observe",
        started: datetime | None = None,
        seconds: float = 10,
        **outcomes: int,
    ) -> None:
        """A sweep that settled one row for each of these latenesses; ended now unless it is said when it started."""
        late = Lateness()
        for each in lateness:
            late.add(each)
        started = started or self.clock.now() - timedelta(seconds=seconds)
        counts = {"changed": late.count, **dict.fromkeys(("unchanged", "conflict", "retry", "quarantined", "lost"), 0)}
        counts.update(outcomes)
        await self.desk.scalar(
            "insert into trueup.sweeps (reconciler, holder, started_at, ended_at, claimed, changed, unchanged, conflict, retry, "
            "quarantined, lost, late, worst_lateness_s, total_lateness_s, lateness) "
            "values (%s, gen_random_uuid(), %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            name,
            started,
            started + timedelta(seconds=seconds),
            sum(counts.values()),
            *counts.values(),
            late.late,
            late.worst_s,
            late.total_s,
            late.counts,
        )

    async def look(self, since: str = "24h", backlog: Backlog | None = None) -> Recovery:
        return await self.app.recovery(since, backlog=backlog)

    async def schedule(self, since: str = "24h") -> ScheduleRecovery:
        (found,) = (await self.look(since)).schedules
        return found

    async def one(self, backlog: Backlog | None = None) -> ReconcilerRecovery:
        (found,) = (await self.look(backlog=backlog)).reconcilers
        return found


@pytest_asyncio.fixture
async def house(still: App, clock: ManualClock) -> House:
    await still.open()
    return House(still, clock)


def left(rows: int | None) -> Backlog:
    async def backlog(name: str) -> int | None:
        return rows

    return backlog


async def test_a_quiet_system_has_nothing_to_tell(house: House) -> None:
    report = await house.look()
    assert (report.since, report.until) == (NOON - timedelta(days=1), NOON)
    assert (report.downtimes, report.schedules, report.reconcilers) == ((), (), ())
    assert report.caught_up
    assert (report.ever_alive, report.summary) == (False, "no worker has run yet; nothing is overdue")
    worker = ManualWorker(house.app)
    await worker.begin()
    report = await house.look()
    assert (report.ever_alive, report.summary) == (True, "no downtime; caught up")
    await worker.end()


async def test_ticks_of_a_downtime_are_coalesced_into_one_that_is_late(house: House) -> None:
    await house.hourly()
    await house.down_for(hours=5, minutes=30)
    found = await house.schedule()
    assert (found.due, found.on_time, found.late, found.skipped) == (5, 0, 1, {"coalesced": 4})
    assert (found.missed, found.coalesced) == (5, 4)
    assert (found.worst_lateness_s, found.average_lateness_s) == (1800.0, 1800.0)
    assert (found.unfinished, found.unfinished_late) == (1, 1)


async def test_the_summary_tells_the_whole_story_and_ends_with_the_late_run(house: House) -> None:
    await house.hourly()
    await house.reconciler()
    await house.down_for(hours=5, minutes=30)
    await house.sweep([3600, 7200])
    story = "down 12:00–17:30Z (5h30m); 5 ticks missed: 1 fired late, 4 coalesced; 2 rows late, worst 2h, average 1h30m"
    report = await house.look()
    assert report.summary == f"{story}; catching up: 1 late run unfinished"
    assert not report.caught_up
    await house.run_jobs()
    report = await house.look(backlog=left(0))
    assert report.summary == f"{story}; caught up"
    assert report.caught_up
    report = await house.look()
    assert report.summary == f"{story}; caught up, as far as is known: remaining rows were not counted"
    assert report.caught_up


async def test_ticks_that_fire_on_time_are_not_missed(house: House) -> None:
    await house.hourly()
    for _ in range(3):
        house.clock.advance(minutes=60)
        await house.plan()
        await house.run_jobs()
    found = await house.schedule()
    assert (found.due, found.on_time, found.missed, found.behind) == (3, 3, 0, False)
    assert "no tick missed" in (await house.look()).summary


async def test_a_run_that_nobody_has_begun_is_late_though_its_tick_was_not(house: House) -> None:
    await house.hourly()
    house.clock.advance(minutes=60)
    await house.plan()
    house.clock.advance(seconds=60)
    assert (await house.look()).caught_up
    house.clock.advance(seconds=1)
    found = await house.schedule()
    assert (found.on_time, found.unfinished, found.unfinished_late) == (1, 1, 1)
    report = await house.look()
    assert report.summary.endswith("; catching up: 1 late run unfinished")
    assert report.overdue == (), "it is counted once"


async def test_late_is_what_is_later_than_the_schedules_own_grace(house: House) -> None:
    await house.hourly("patient", grace="45m")
    await house.hourly("strict")
    house.clock.advance(minutes=90)
    await house.plan()
    patient, strict = (await house.look()).schedules
    assert (patient.on_time, patient.late) == (1, 0)
    assert (strict.on_time, strict.late) == (0, 1)
    assert patient.unfinished_late == 0
    assert strict.unfinished_late == 1


async def test_ticks_skipped_as_missed_and_outside_catch_up_are_told_apart(house: House) -> None:
    await house.hourly("skipping", missed="skip")
    await house.hourly("catching", missed="all", catch_up="2h", overlap="allow")
    await house.down_for(hours=5, minutes=30)
    report = await house.look()
    catching, skipping = report.schedules
    assert (catching.late, catching.skipped) == (2, {"outside catch_up": 3})
    assert (skipping.late, skipping.skipped) == (0, {"missed": 5})
    assert "10 ticks missed: 2 fired late, 5 skipped, 3 outside catch_up" in report.summary


async def test_ticks_skipped_because_a_run_was_not_finished_were_not_missed(house: House) -> None:
    await house.hourly()
    for _ in range(2):
        house.clock.advance(minutes=60)
        await house.plan()
    found = await house.schedule()
    assert (found.due, found.on_time, found.skipped, found.missed) == (2, 1, {"still waiting to run": 1}, 0)


async def test_what_people_triggered_was_not_due_and_what_they_backfilled_was_missed(house: House) -> None:
    await house.hourly()
    await house.down_for(hours=5, minutes=30)
    await house.app.schedules.trigger("reports")
    await house.app.schedules.backfill("reports", NOON + timedelta(hours=1), NOON + timedelta(hours=1, minutes=1))
    found = await house.schedule()
    assert (found.due, found.late, found.backfilled, found.coalesced) == (5, 1, 1, 3)
    assert found.missed == 5


async def test_ticks_that_nobody_decided_about_yet_are_behind(house: House) -> None:
    await house.hourly()
    house.clock.advance(hours=3, minutes=30)
    found = await house.schedule()
    assert (found.due, found.undecided, found.behind) == (3, 3, True)
    report = await house.look()
    assert not report.caught_up
    assert report.summary.endswith("3 ticks missed: 3 undecided; catching up: 3 ticks undecided")


async def test_a_tick_that_was_passed_over_is_unaccounted_for(house: House) -> None:
    await house.hourly()
    house.clock.advance(minutes=60)
    await house.plan()
    await house.run_jobs()
    await house.desk.scalar("delete from trueup.ticks")
    found = await house.schedule()
    assert (found.due, found.unaccounted, found.behind) == (1, 1, True)
    assert not (await house.look()).caught_up


async def test_a_schedule_of_a_newer_release_is_not_called_caught_up_with(house: House) -> None:
    await house.hourly()
    await house.desk.scalar("""update trueup.schedules set policy = '{"mood": "good"}'""")
    await house.desk.scalar("""update trueup.schedule_versions set spec = '{"kind": "lunar"}'""")
    found = await house.schedule()
    assert "lunar" in str(found.unreadable)
    assert found.behind


async def test_a_downtime_that_reaches_in_takes_the_report_back_to_its_beginning(house: House) -> None:
    await house.hourly()
    await house.down_for(hours=30, minutes=30)
    report = await house.look("1h")
    assert report.downtimes == (Downtime(NOON, NOON + timedelta(hours=30, minutes=30)),)
    assert report.since == NOON
    (found,) = report.schedules
    assert found.due == 30
    assert report.summary.startswith("down 2026-06-01 12:00Z – 2026-06-02 18:30Z (1d6h)")
    house.clock.advance(hours=2)
    assert (await house.look("1h")).downtimes == ()


async def test_while_nobody_is_there_it_says_so(house: House) -> None:
    await house.hourly()
    await house.start()
    house.clock.advance(seconds=60)
    assert (await house.look()).caught_up, "it may have been restarted"
    house.clock.advance(hours=2, minutes=4)
    report = await house.look("1h")
    assert (report.downtimes, report.down_since, report.since) == ((), NOON, NOON)
    assert not report.caught_up
    assert report.summary == "no worker alive since 12:00Z (2h5m); 2 ticks undecided; 2 ticks missed: 2 undecided"
    await house.start()
    report = await house.look()
    assert report.down_since is None
    assert len(report.downtimes) == 1


async def test_many_downtimes_are_a_number_and_the_longest(house: House) -> None:
    for minutes in (2, 30, 3):
        await house.down_for(minutes=minutes)
        house.clock.advance(seconds=LEASE.total_seconds())
    told = (await house.look()).summary
    assert told == ("down 3 times, 35m in all, longest 12:02–12:32Z (30m); caught up")


async def test_jobs_that_nobody_claimed_for_more_than_a_minute_are_behind(house: House) -> None:
    await house.report.enqueue()
    house.clock.advance(seconds=60)
    assert (await house.look()).caught_up
    house.clock.advance(hours=1)
    report = await house.look()
    assert [(each.kind, each.count, each.oldest_s) for each in report.overdue] == [("report", 1, 3660.0)]
    assert report.summary == "no worker has run yet; catching up: 1 job overdue, the oldest by 1h1m"


async def test_sweeps_are_summed_up_with_their_histogram(house: House) -> None:
    await house.sweep([0.5, 5, 120], retry=2, lost=1)
    await house.sweep([0.5, 7200], unchanged=4, conflict=1, quarantined=1)
    found = await house.one()
    assert found.counts.as_dict() == {
        "claimed": 14,
        "changed": 5,
        "unchanged": 4,
        "conflict": 1,
        "undone": 0,
        "retry": 2,
        "quarantined": 1,
        "lost": 1,
    }
    assert found.lateness.counts == [2, 1, 0, 1, 0, 0, 1, 0, 0]
    assert (found.lateness.late, found.lateness.worst_s, found.lateness.average_s) == (2, 7200, 7326 / 5)
    assert "2 of 5 rows late, worst 2h, average of all 24m" in (await house.look()).summary


async def test_sweeps_that_ended_before_are_not_counted(house: House) -> None:
    await house.sweep([1], started=NOON - timedelta(hours=26), seconds=3600)
    await house.sweep([1, 1], started=NOON - timedelta(hours=25), seconds=7200)  # ends within
    assert (await house.one()).counts.claimed == 2


async def test_sweeps_counted_between_other_bounds_do_no_harm(house: House) -> None:
    await house.sweep([1])
    await house.desk.scalar("update trueup.sweeps set lateness = '{1,2}'")
    assert (await house.one()).lateness.counts == [1, 2, 0, 0, 0, 0, 0, 0, 0]
    await house.desk.scalar("update trueup.sweeps set lateness = '{}'")
    assert (await house.one()).lateness.counts == [0] * 9


async def test_the_rate_is_of_the_time_that_somebody_swept_however_many_did(house: House) -> None:
    now = house.clock.now()
    await house.sweep([1] * 10_000, started=now - timedelta(hours=2), seconds=1)  # long ago, and faster
    await house.sweep([1] * 300, started=now - timedelta(seconds=100), seconds=20)
    await house.sweep(
        [1] * 300, started=now - timedelta(seconds=90), seconds=20
    )  # by another worker, half of it meanwhile
    await house.sweep([1] * 400, started=now - timedelta(seconds=10), seconds=10, lost=50)
    assert (await house.one()).rows_per_second == 1000 / 40


async def test_a_sweep_that_took_no_time_has_no_rate(house: House) -> None:
    await house.sweep([1], seconds=0)
    assert (await house.one()).rows_per_second is None


async def test_with_a_backlog_there_is_a_time_when_it_will_be_done(house: House) -> None:
    await house.reconciler()
    await house.sweep([1] * 500, seconds=10)
    found = await house.one(left(1200))
    assert (found.backlog, found.eta_s, found.behind) == (1200, 24.0, True)
    report = await house.look(backlog=left(1200))
    assert report.summary.endswith("; catching up: 1,200 rows left, 50/s, about 24s")
    assert not report.caught_up
    assert (await house.look(backlog=left(0))).caught_up


async def test_without_a_backlog_or_a_rate_there_is_no_time_to_name(house: House) -> None:
    await house.reconciler()
    assert (await house.one(left(5))).eta_s is None
    assert (await house.look(backlog=left(5))).summary.endswith("catching up: 5 rows left")
    await house.sweep([1] * 500, seconds=10)
    unknown = await house.one(left(None))
    assert (unknown.backlog, unknown.eta_s, unknown.behind) == (None, None, False)
    assert (await house.one()).eta_s is None


async def test_of_several_reconcilers_the_slowest_ends_last(house: House) -> None:
    for name, rows in (("fast", 1000), ("slow", 10)):
        await house.reconciler(name)
        await house.sweep([1] * rows, seconds=10, name=name)
    assert (await house.look(backlog=left(100))).summary.endswith("200 rows left, 101/s, about 1m40s")


@pytest.mark.parametrize("how", [{"state": "paused"}, {"paused_until": NOON + timedelta(minutes=1)}], ids=str)
async def test_a_paused_reconciler_has_no_time_when_it_will_be_done(house: House, how: dict[str, Any]) -> None:
    await house.reconciler(**how)
    await house.sweep([1] * 500, seconds=10)
    assert (await house.one(left(5))).eta_s is None
    assert (await house.look(backlog=left(5))).summary.endswith("5 rows left, observe paused")


async def test_while_no_worker_is_alive_there_is_no_time_when_rows_will_be_done(house: House) -> None:
    await house.reconciler()
    await house.sweep([1] * 500, seconds=10)
    await house.start()
    assert (await house.one(left(5))).eta_s == 0.1
    house.clock.advance(hours=2)
    assert (await house.one(left(5))).eta_s is None
    assert (await house.look(backlog=left(5))).summary.startswith("no worker alive since 12:00Z (2h); 5 rows left; ")


async def test_a_reconciler_whose_sweeps_fail_has_no_time_when_it_will_be_done(house: House) -> None:
    await house.reconciler()
    await house.sweep([1] * 500, seconds=10)
    await house.desk.scalar(
        "update trueup.reconcilers set last_error = 'broken view', last_failed_at = now(), failures = 3"
    )
    assert (await house.one(left(5))).eta_s is None
    assert (await house.look(backlog=left(5))).summary.endswith(
        "catching up: 5 rows left; sweeps of observe fail: see trueup reconcilers show observe"
    )


async def test_a_pause_that_is_over_is_none(house: House) -> None:
    await house.reconciler(paused_until=NOON)
    assert not (await house.one()).paused


async def test_rows_that_rest_are_held_or_set_aside_are_counted(house: House) -> None:
    await house.reconciler()
    insert = (
        "insert into trueup.rows (reconciler, key, state, due_at, holder, term, attempt, claimed_at, changed_at) "
        "select 'observe', %s || n, %s, now(), case when %s = 'held' then gen_random_uuid() end, n, 1, now(), now() "
        "from generate_series(1, %s) as n"
    )
    for state, count in (("held", 1), ("resting", 2), ("quarantined", 3), ("discarded", 4)):
        await house.desk.scalar(insert, state, state, state, count)
    found = await house.one()
    assert (found.held, found.resting, found.quarantined, found.discarded) == (1, 2, 3, 4)


async def test_how_far_back_needs_a_unit(house: House) -> None:
    with pytest.raises(ConfigError, match="has no unit"):
        await house.look("24")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0.0s"), (3.25, "3.2s"), (9.96, "10s"), (24.4, "24s"), (95, "1m35s"), (599.6, "10m"), (5400, "1h30m")),
        *((12_629, "3h30m"), (86_399, "1d"), (109_800, "1d6h"), (-1, "0.0s")),
    ],
)
async def test_lengths_of_time_are_told_as_exactly_as_anybody_wants_to_know(seconds: float, text: str) -> None:
    assert short(seconds) == text
