"""What people do to schedules, on a clock that stands still until it is moved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from tests.support.watching import Watched
from trueup import App, ConfigError, EnqueueCall, InvalidArguments, Job, NotFound, Retry, Tick, UnknownKind
from trueup.events import ScheduleChanged
from trueup.operate.schedules import ScheduleOperations
from trueup.schedules import Cron, Every, Once, yearly
from trueup.store.history import APART, Kept
from trueup.testing.clock import NOON, ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

HOURLY = Cron("0 * * * *")

DAY = timedelta(days=1)
KEPT = Kept(done=DAY, cancelled=DAY, dead=DAY, ticks=90 * DAY, sweeps=DAY)


class Shop:
    """An App with a few jobs, and its schedules."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self.watched = Watched(app)
        self.seen: list[tuple[str | int, datetime]] = []

        @app.job
        async def report(shop: str | int, tick: Tick) -> None:
            self.seen.append((shop, tick.due_at))

        @app.job(limit=1)
        async def alone() -> None: ...

        @app.job(retry=Retry(max_attempts=1))
        async def broken() -> None:
            raise ValueError("no")

        @app.job(fair_by="tenant")
        async def fair(tenant: str) -> None: ...

        self.report: Job[..., Any] = report
        self.alone, self.broken, self.fair = alone, broken, fair

    @property
    def schedules(self) -> ScheduleOperations:
        return self.app.schedules

    async def hourly(self, name: str = "reports", **policy: Any) -> None:
        await self.schedules.create(name, HOURLY, self.report.call(shop="north"), **policy)

    async def pass_by(self, **duration: float) -> None:
        """Time passes, and the planner looks."""
        self.clock.advance(**duration)
        while (await self.app.store.schedules.plan()).more:
            pass

    async def ticks(self, name: str = "reports") -> list[tuple[datetime, str, str | None]]:
        """Oldest first."""
        shown = await self.schedules.show(name, 1000)
        return [(tick["due_at"], tick["outcome"], tick["reason"]) for tick in reversed(shown["ticks"])]

    def changes(self) -> list[str]:
        return [f"{event.schedule} {event.what}" for event in self.watched.of(ScheduleChanged)]


@pytest_asyncio.fixture
async def shop(still: App, clock: ManualClock) -> Shop:
    await still.open()
    return Shop(still, clock)


def hours(count: int) -> datetime:
    return NOON + timedelta(hours=count)


async def test_a_schedule_that_people_made_runs_their_job_with_its_arguments_and_its_tick(
    shop: Shop, worker: ManualWorker
) -> None:
    await shop.hourly()
    await shop.pass_by(hours=1)
    assert await worker.run_pending() == 1
    assert shop.seen == [("north", hours(1))]
    assert shop.changes() == ["reports created"]


async def test_a_one_off_is_fired_once_and_has_no_next_tick(shop: Shop) -> None:
    await shop.schedules.create("once", Once(hours(2)), shop.report.call(shop="south"))
    await shop.pass_by(hours=5)
    assert await shop.ticks("once") == [(hours(2), "fired", None)]
    assert (await shop.schedules.show("once"))["next_due_at"] is None


async def test_a_name_that_is_taken_is_refused_and_the_schedule_stays_as_it_was(shop: Shop) -> None:
    await shop.hourly()
    with pytest.raises(ConfigError, match=r"'reports' already, made by people; choose another name"):
        await shop.schedules.create("reports", Every("5m"), shop.report.call(shop="south"))
    assert (await shop.schedules.show("reports"))["args"] == {"shop": "north"}


async def test_of_two_who_create_one_name_at_the_same_time_one_succeeds(shop: Shop) -> None:
    made = await asyncio.gather(*(shop.hourly() for _ in range(8)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in made) == ["ConfigError"] * 7 + ["NoneType"]


@pytest.mark.parametrize("name", ["", "two words", "-x", "é", "x" * 201])
async def test_a_name_that_is_none_is_refused(shop: Shop, name: str) -> None:
    with pytest.raises(ConfigError, match="schedule"):
        await shop.hourly(name)


async def test_what_cannot_be_scheduled_is_refused_and_says_why(shop: Shop) -> None:
    create = shop.schedules.create
    with pytest.raises(ConfigError, match="give a Cron, an Every or a Once"):
        await create("x", yearly(3, 14, "09:00", "UTC"), shop.alone.call())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"what job.call\(…\) returns is needed"):
        await create("x", HOURLY, shop.alone)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot have delay="):
        await create("x", HOURLY, shop.alone.using(delay="5m").call())
    with pytest.raises(ConfigError, match="fair_by="):
        await create("x", HOURLY, shop.fair.call("acme"))
    with pytest.raises(UnknownKind):
        await create("x", HOURLY, shop.alone.call()._replace(kind="elsewhere"))
    with pytest.raises(ConfigError, match="a schedule has no retries"):
        await create("x", HOURLY, shop.alone.call(), retries=3)  # type: ignore[call-arg]
    assert await shop.schedules.list() == []


@pytest.mark.parametrize("overlap", ["queue_one", "queue_all", "cancel_running"])
async def test_runs_that_wait_for_one_another_need_a_job_with_a_limit_of_one(shop: Shop, overlap: Any) -> None:
    with pytest.raises(ConfigError, match="declare job 'report' with limit=1"):
        await shop.hourly(overlap=overlap)
    await shop.schedules.create("alone", HOURLY, shop.alone.call(), overlap=overlap)


async def test_an_edit_changes_what_is_given_and_settles_what_was_due_by_the_old_rule(shop: Shop) -> None:
    await shop.hourly(missed="all", overlap="allow")
    shop.clock.advance(hours=2, minutes=30)
    assert await shop.schedules.edit("reports", spec=Cron("15 * * * *"), catch_up="2d")
    await shop.pass_by(hours=1)
    assert [due_at for due_at, _, _ in await shop.ticks()] == [hours(1), hours(2), hours(3) + timedelta(minutes=15)]
    shown = await shop.schedules.show("reports")
    assert shown["policy"] == {"missed": "all", "overlap": "allow", "catch_up": "2d"}
    assert shown["args"] == {"shop": "north"}
    assert shop.changes() == ["reports created", "reports edited"]


async def test_an_edit_that_changes_nothing_says_so_and_makes_no_version(shop: Shop) -> None:
    await shop.hourly(jitter="5m")
    assert not await shop.schedules.edit("reports", spec=HOURLY, jitter="300s")
    assert (await shop.schedules.show("reports"))["version"] == 1


async def stored_metas(app: App) -> list[Any]:
    rows = await app.store.pool.fetch("select meta from trueup.jobs where schedule is not null order by id", {})
    return [meta for (meta,) in rows]


@pytest.mark.parametrize("how", ["option", "call", "both"])
async def test_a_ticks_job_carries_its_schedules_meta_and_nothing_of_middleware(shop: Shop, how: str) -> None:
    class Requests:
        @contextmanager
        def around_enqueue(self, call: EnqueueCall) -> Iterator[None]:
            call.meta["request"] = "that made the schedule"
            yield

    shop.app.middleware(Requests())
    meta = {"tenant": "north", "number": 10**30, "text": "\u00e4 \U0001f600"}
    job = shop.report if how == "option" else shop.report.using(meta=meta if how == "call" else {"tenant": "south"})
    option = {} if how == "call" else {"meta": meta}
    await shop.schedules.create("reports", HOURLY, job.call(shop="north"), overlap="allow", **option)
    await shop.pass_by(hours=1, minutes=1)
    await shop.schedules.trigger("reports")
    await shop.schedules.backfill("reports", NOON - DAY, NOON - DAY)
    assert await stored_metas(shop.app) == [meta] * 3
    assert (await shop.schedules.show("reports"))["meta"] == meta


async def test_an_edit_replaces_meta_keeps_it_or_takes_it_away(shop: Shop) -> None:
    call = shop.report.using(meta={"a": 1}).call(shop="north")
    await shop.schedules.create("reports", HOURLY, call, overlap="allow")
    edits: list[tuple[dict[str, Any], dict[str, int] | None]] = [
        ({"spec": Cron("15 * * * *")}, {"a": 1}),
        ({"call": shop.report.call(shop="south")}, {"a": 1}),
        ({"call": shop.report.using(meta={"b": 2}).call(shop="south")}, {"b": 2}),
        ({"meta": {"c": 3}}, {"c": 3}),
        ({"meta": {}}, None),
    ]
    for given, meta in edits:
        assert await shop.schedules.edit("reports", **given)
        assert not await shop.schedules.edit("reports", **given)
        assert (await shop.schedules.show("reports"))["meta"] == meta
    await shop.schedules.trigger("reports")
    assert await stored_metas(shop.app) == [None]


@pytest.mark.parametrize("meta", [7, "text", {1: "a"}, {"a": object()}, {"a": float("nan")}, {"a": "x" * 17_000}])
async def test_a_meta_that_cannot_be_stored_is_refused_with_the_name_of_the_schedule(shop: Shop, meta: Any) -> None:
    await shop.hourly()
    for change in (shop.hourly("another", meta=meta), shop.schedules.edit("reports", meta=meta)):
        with pytest.raises((ConfigError, InvalidArguments), match=r"schedule '(another|reports)': meta"):
            await change


async def test_an_edit_keeps_arguments_that_are_longer_than_64_bits(shop: Shop) -> None:
    call = shop.report.call(shop=10**30)
    await shop.schedules.create("reports", HOURLY, call)
    await shop.schedules.edit("reports", jitter="5m")
    assert (await shop.schedules.show("reports"))["args"] == {"shop": 10**30}


async def test_of_two_edits_at_the_same_moment_none_is_lost_silently(shop: Shop) -> None:
    await shop.hourly()
    edits = [shop.schedules.edit("reports", spec=Every(f"{minutes}m")) for minutes in range(1, 9)]
    done = await asyncio.gather(*edits, return_exceptions=True)
    refused = [each for each in done if isinstance(each, ConfigError)]
    assert all("changed by another transaction" in str(each) for each in refused)
    assert (await shop.schedules.show("reports"))["version"] == 1 + len(done) - len(refused)


async def test_a_paused_schedule_fires_nothing_and_a_resumed_one_begins_anew(shop: Shop) -> None:
    await shop.hourly(missed="all")
    await shop.pass_by(minutes=30)
    assert await shop.schedules.pause("reports", "maintenance")
    assert not await shop.schedules.pause("reports")
    assert (await shop.schedules.show("reports"))["note"] == "maintenance"
    await shop.pass_by(hours=3)
    assert await shop.schedules.resume("reports")
    assert not await shop.schedules.resume("reports")
    await shop.pass_by(hours=1)
    assert [due_at for due_at, _, _ in await shop.ticks()] == [hours(4)]
    assert shop.changes() == ["reports created", "reports paused", "reports resumed"]


async def test_a_deleted_schedule_leaves_its_ledger_and_its_name_can_be_used_again(shop: Shop) -> None:
    await shop.hourly()
    await shop.pass_by(hours=1)
    await shop.schedules.delete("reports")
    with pytest.raises(NotFound):
        await shop.schedules.show("reports")
    await shop.hourly()
    assert await shop.ticks() == [(hours(1), "fired", None)]
    with pytest.raises(NotFound, match="no schedule is called 'nothing'"):
        await shop.schedules.delete("nothing")


async def test_what_was_due_when_a_schedule_was_deleted_is_settled_first(shop: Shop) -> None:
    await shop.hourly()
    shop.clock.advance(hours=1)
    await shop.schedules.delete("reports")
    await shop.hourly()
    assert await shop.ticks() == [(hours(1), "fired", None)]


async def test_a_schedule_of_the_code_can_be_paused_but_neither_changed_nor_deleted(app: App) -> None:
    @app.cron("0 0 1 1 *")
    async def yearly() -> None: ...

    async with app.worker():
        assert await app.schedules.pause("yearly", "not now")
        for refused in (app.schedules.edit("yearly", jitter="5m"), app.schedules.delete("yearly")):
            with pytest.raises(ConfigError, match=r"declared in code .* pause it instead"):
                await refused
        with pytest.raises(ConfigError, match="declared in code; choose another name"):
            await app.schedules.create("yearly", HOURLY, yearly.call())
    assert (await app.schedules.show("yearly"))["state"] == "paused"


async def test_a_retired_schedule_must_be_deleted_before_its_name_is_used_again(shop: Shop) -> None:
    await shop.hourly()
    await shop.app.store.schedules.retire(["reports"], "no longer declared in the code")
    with pytest.raises(ConfigError, match="delete it first"):
        await shop.hourly()
    await shop.schedules.delete("reports")
    await shop.hourly()


async def test_a_trigger_fires_now_also_during_a_pause_and_moves_no_tick(shop: Shop) -> None:
    await shop.hourly()
    await shop.schedules.pause("reports")
    shop.clock.advance(minutes=10)
    await shop.schedules.trigger("reports")
    await shop.schedules.resume("reports")
    await shop.pass_by(minutes=50)
    assert await shop.ticks() == [
        (NOON + timedelta(minutes=10), "fired", "triggered"),
        (hours(1), "skipped", "still waiting to run"),
    ]
    with pytest.raises(NotFound):
        await shop.schedules.trigger("nothing")


async def test_a_backfill_fires_each_tick_of_the_range_once_however_often_it_is_asked_for(
    shop: Shop, worker: ManualWorker
) -> None:
    await shop.hourly()
    looked_at: list[int] = []
    first = await shop.schedules.backfill("reports", hours(-5), hours(-3), rate="1000/s", progress=looked_at.append)
    again = await shop.schedules.backfill("reports", hours(-6), hours(-3), rate="1000/s")
    assert (first, sum(looked_at), again) == (3, 3, 1)
    assert await worker.run_pending() == 4
    assert sorted(due_at for _, due_at in shop.seen) == [hours(-6), hours(-5), hours(-4), hours(-3)]


async def test_a_backfill_also_fires_what_a_downtime_had_coalesced(shop: Shop) -> None:
    await shop.hourly()
    await shop.pass_by(hours=5)
    assert await shop.ticks() == [(hours(1), "skipped", "coalesced"), (hours(5), "fired", None)]
    assert await shop.schedules.backfill("reports", hours(1), hours(5)) == 4
    assert await shop.ticks() == [
        (hours(1), "fired", "backfill (was coalesced)"),
        *((hours(n), "fired", "backfill") for n in (2, 3, 4)),
        (hours(5), "fired", None),
    ]
    assert await shop.schedules.backfill("reports", hours(1), hours(5)) == 0


async def test_a_preview_of_a_backfill_names_what_the_backfill_then_fires(shop: Shop) -> None:
    await shop.hourly()
    await shop.pass_by(hours=5)  # the first four are coalesced, the fifth is fired
    before = await shop.ticks()
    preview = await shop.schedules.preview_backfill("reports", hours(-1), hours(5))
    assert preview.ticks == 7
    assert preview.to_fire == tuple(hours(n) for n in (-1, 0, 1, 2, 3, 4))
    assert await shop.ticks() == before
    assert await shop.schedules.backfill("reports", hours(-1), hours(5)) == len(preview.to_fire)
    assert (await shop.schedules.preview_backfill("reports", hours(-1), hours(5))).to_fire == ()
    for start, end in ((hours(0), hours(9)), (hours(1), hours(0)), (datetime.min.replace(tzinfo=UTC), hours(0))):
        with pytest.raises(ConfigError):
            await shop.schedules.preview_backfill("reports", start, end)


async def test_a_backfill_keeps_to_its_rate(shop: Shop) -> None:
    await shop.hourly()
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await shop.schedules.backfill("reports", hours(-19), hours(0), rate="50/s") == 20
    quick = loop.time() - began
    began = loop.time()
    assert await shop.schedules.backfill("reports", hours(-30), hours(-20), rate="10/s") == 11
    assert loop.time() - began >= 1.0
    assert quick < 10


async def test_a_backfill_of_the_future_of_nothing_or_of_too_much_is_refused(shop: Shop) -> None:
    await shop.hourly()
    with pytest.raises(ConfigError, match="is in the future; a backfill takes past times only"):
        await shop.schedules.backfill("reports", hours(0), hours(1))
    with pytest.raises(ConfigError, match="ends before it starts"):
        await shop.schedules.backfill("reports", hours(1), hours(0))
    with pytest.raises(ConfigError, match="more than 100,000 ticks"):
        await shop.schedules.backfill("reports", datetime(2000, 1, 1, tzinfo=UTC), hours(0))
    with pytest.raises(ConfigError, match="start=2026-01-01T00:00:00 has no time zone"):
        await shop.schedules.backfill("reports", datetime(2026, 1, 1), hours(0))  # noqa: DTZ001
    with pytest.raises(NotFound):
        await shop.schedules.backfill("nothing", hours(-1), hours(0))
    assert await shop.ticks() == []


async def test_backfilled_runs_queue_up_behind_those_that_wait_already(shop: Shop) -> None:
    await shop.hourly()
    await shop.alone.enqueue()
    shop.clock.advance(minutes=1)
    await shop.schedules.backfill("reports", hours(-1), hours(-1))
    jobs = await shop.app.jobs.list(state="queued")
    assert [job.kind for job in sorted(jobs, key=lambda job: job.run_at)] == ["alone", "report"]


async def test_dead_runs_in_a_row_pause_the_schedule_and_the_tick_that_was_due_says_why(
    shop: Shop, worker: ManualWorker
) -> None:
    await shop.schedules.create("broken", HOURLY, shop.broken.call(), pause_after=2)
    for _ in range(2):
        await shop.pass_by(hours=1)
        assert await worker.run_pending() == 1
    await shop.pass_by(hours=1)
    shown = await shop.schedules.show("broken")
    assert (shown["state"], shown["note"]) == ("paused", "the last 2 runs are dead")
    assert await shop.ticks("broken") == [
        (hours(1), "fired", None),
        (hours(2), "fired", None),
        (hours(3), "skipped", "paused"),
    ]
    await shop.pass_by(hours=5)
    assert len(await shop.ticks("broken")) == 3


async def test_a_resumed_schedule_counts_its_dead_runs_anew(shop: Shop, worker: ManualWorker) -> None:
    await shop.schedules.create("broken", HOURLY, shop.broken.call(), pause_after=1)
    await shop.pass_by(hours=1)
    await worker.run_pending()
    await shop.pass_by(hours=1)
    assert (await shop.schedules.show("broken"))["state"] == "paused"
    await shop.schedules.resume("broken")
    await shop.pass_by(hours=1)
    assert (await shop.ticks("broken"))[-1] == (hours(3), "fired", None)
    assert (await shop.schedules.show("broken"))["state"] == "active"


async def test_a_dead_run_that_somebody_discarded_does_not_count(shop: Shop, worker: ManualWorker) -> None:
    await shop.schedules.create("broken", HOURLY, shop.broken.call(), pause_after=2)
    await shop.pass_by(hours=1)
    await worker.run_pending()
    await shop.app.jobs.discard_all(None)
    await shop.pass_by(hours=1)
    await worker.run_pending()
    await shop.pass_by(hours=1)
    assert (await shop.schedules.show("broken"))["state"] == "active"


async def test_the_ticker_tells_of_a_schedule_that_it_paused(shop: Shop, worker: ManualWorker) -> None:
    await shop.schedules.create("broken", HOURLY, shop.broken.call(), pause_after=1)
    for _ in range(2):
        shop.clock.advance(hours=1)
        await worker.worker.ticker.plan()
        await worker.run_pending()
    assert shop.changes() == ["broken created", "broken paused: its runs keep dying"]


async def test_a_preview_is_the_same_by_name_and_by_rule(shop: Shop) -> None:
    berlin = Cron("30 2 * * *", tz="Europe/Berlin")
    await shop.schedules.create("berlin", berlin, shop.alone.call())
    seen = await shop.schedules.preview("berlin", 2027)
    assert seen == await shop.schedules.preview(berlin, 2027)
    assert seen.first[0] == datetime(2027, 1, 1, 1, 30, tzinfo=UTC)
    assert [(each.clocks, each.ticks) for each in seen.touched] == [
        ("gap", (datetime(2027, 3, 28, 1, tzinfo=UTC),)),
        ("fold", (datetime(2027, 10, 31, 0, 30, tzinfo=UTC),)),
    ]
    assert (await shop.schedules.preview(Every("1h"), 2027)).touched == ()
    assert (await shop.schedules.preview(Once(NOON), 2027)).first == ()


@pytest.mark.slow
async def test_after_changes_made_while_ticks_fire_every_tick_is_accounted_for_once(
    app: App, database_url: str
) -> None:
    @app.job
    async def noop() -> None: ...

    second = Cron("* * * * * *")
    rules = [second, Every("1s", anchor=datetime(2026, 1, 1, 0, 0, 0, 400_000, tzinfo=UTC)), Cron("*/2 * * * * *")]
    other = App(database_url)
    other.registry.add(noop)
    async with other, app.worker(), other.worker():
        await app.schedules.create("busy", second, noop.call(), overlap="allow", missed="all")
        for turn in range(24):  # changes fall on all parts of a second
            await asyncio.sleep(0.23)
            match turn % 6:
                case 0:
                    await app.schedules.edit("busy", spec=rules[turn // 6 % 3])
                case 1:
                    await app.schedules.trigger("busy")
                case 2:
                    await app.schedules.pause("busy")
                case 3:
                    await app.schedules.resume("busy")
                case 4:
                    await app.schedules.backfill("busy", datetime.now(UTC) - timedelta(seconds=9), await settled(app))
                case 5:
                    await app.schedules.delete("busy")
                    await app.schedules.create("busy", rules[turn // 6 % 3], noop.call(), overlap="allow", missed="all")
    found = await app.schedules.audit("1h")
    assert found.clean, found
    (findings,) = found.schedules
    assert findings.expected > 0
    assert findings.fired > findings.expected  # what was triggered and backfilled besides


async def settled(app: App) -> datetime:
    """A moment that the database, too, takes for past."""
    return await app.store.schedules.now()


# -- a moment that is past, or has passed -----------------------------------------------------------------------------------


async def test_a_moment_that_is_past_is_refused_when_it_is_given(shop: Shop) -> None:
    call = shop.report.call(shop="north")
    with pytest.raises(ConfigError, match=r"schedule 'late': Once at .* is in the past; give a future time"):
        await shop.schedules.create("late", Once(hours(-1)), call)
    assert await shop.schedules.list() == []
    await shop.schedules.create("soon", Once(hours(1)), call)
    with pytest.raises(ConfigError, match="is in the past"):
        await shop.schedules.edit("soon", spec=Once(hours(-1)))
    assert (await shop.schedules.show("soon"))["next_due_at"] == hours(1)


async def test_a_moment_within_its_grace_is_late_and_not_missed(shop: Shop) -> None:
    """The clock of whoever creates it may be behind the database's."""
    at = NOON - timedelta(seconds=30)
    await shop.schedules.create("now", Once(at), shop.report.call(shop="north"))
    await shop.pass_by(seconds=1)
    assert await shop.ticks("now") == [(at, "fired", None)]
    assert (await shop.schedules.audit()).clean


async def test_a_schedule_whose_only_tick_has_fired_is_finished_and_then_forgotten(shop: Shop) -> None:
    await shop.schedules.create("once", Once(hours(1)), shop.report.call(shop="north"))
    await shop.pass_by(hours=1)
    shown = await shop.schedules.show("once")
    assert (shown["state"], shown["next_due_at"]) == ("finished", None)
    assert (await shop.app.store.views.planning())["finished"] == 1
    for act in (shop.schedules.pause, shop.schedules.resume):
        with pytest.raises(ConfigError, match="it has fired its last tick; create another one"):
            await act("once")
    with pytest.raises(ConfigError, match="'once' already, and is finished: delete it first"):
        await shop.schedules.create("once", Once(hours(9)), shop.report.call(shop="north"))
    await shop.pass_by(days=2)
    await shop.app.store.history.prune(KEPT)
    assert len(await shop.schedules.list()) == 1, "one pass alone deletes nothing"
    await shop.pass_by(seconds=APART)
    await shop.app.store.history.prune(KEPT)
    assert await shop.schedules.list() == []
    assert (await shop.schedules.audit()).clean, "its ledger is kept for longer"


async def test_a_finished_schedule_that_is_given_a_new_moment_is_active_again(shop: Shop) -> None:
    await shop.schedules.create("once", Once(hours(1)), shop.report.call(shop="north"))
    await shop.pass_by(hours=1)
    assert await shop.schedules.edit("once", spec=Once(hours(3)))
    await shop.pass_by(hours=2)
    assert [due_at for due_at, *_ in await shop.ticks("once")] == [hours(1), hours(3)]
    assert (await shop.schedules.audit()).clean


@pytest.mark.parametrize("way", ["fired by an older release", "resumed after its moment"])
async def test_a_schedule_without_a_tick_to_come_is_finished_by_housekeeping(shop: Shop, way: str) -> None:
    await shop.schedules.create("once", Once(hours(1)), shop.report.call(shop="north"))
    if way == "resumed after its moment":
        await shop.schedules.pause("once")
        await shop.pass_by(hours=2)
        await shop.schedules.resume("once")
    else:
        await shop.pass_by(hours=1)
        async with shop.app.store.pool.use() as connection:
            await connection.execute("update trueup.schedules set state = 'active'")
    await shop.app.store.history.prune(KEPT)
    assert (await shop.schedules.show("once"))["state"] == "finished"


# -- what running workers declare -------------------------------------------------------------------------------------------


async def declare(shop: Shop) -> ManualWorker:
    @shop.app.cron("0 * * * *")
    async def nightly(tick: Tick) -> None: ...

    worker = ManualWorker(shop.app)
    await worker.begin()
    return worker


async def test_what_running_workers_declare_is_not_retired_by_hand(shop: Shop) -> None:
    worker = await declare(shop)
    with pytest.raises(ConfigError, match=r"declared by running workers \(unnamed service, release unknown\)"):
        await shop.schedules.retire("nightly")
    await shop.hourly("made")
    with pytest.raises(ConfigError, match="not declared in code; delete it instead"):
        await shop.schedules.retire("made")
    shop.clock.advance(minutes=5)  # its lease is over
    assert await shop.schedules.retire("nightly", "moved to cron")
    assert not await shop.schedules.retire("nightly")
    shown = await shop.schedules.show("nightly")
    assert (shown["state"], shown["note"]) == ("retired", "moved to cron")
    await worker.end()


@pytest.mark.parametrize("loss", ["delete from trueup.schedules", "update trueup.schedules set state = 'retired'"])
@pytest.mark.parametrize("known", ["by the code that asks", "by running workers"])
async def test_an_audit_finds_what_is_declared_and_does_not_fire(shop: Shop, loss: str, known: str) -> None:
    worker = await declare(shop)
    app = shop.app if known == "by the code that asks" else App(shop.app.store.url, clock=shop.clock)
    await app.open()
    assert (await app.schedules.audit()).clean
    async with shop.app.store.pool.use() as connection:
        await connection.execute(loss.encode())
    found = await app.schedules.audit()
    assert not found.clean
    missing = {findings.name: findings.missing for findings in found.schedules}
    assert missing["nightly"] == f"declared in code, and {'retired' if 'retired' in loss else 'not stored'}"
    assert (await app.schedules.attention())["missing"] == ["nightly"]
    if app is not shop.app:
        await app.close()
    await worker.end()
