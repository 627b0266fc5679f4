"""What running code declares: put back when it is lost, retired when its service no longer wants it, and never by guesswork."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.work.fleet import Fleet, crons, jobs
from trueup import App, Rate
from trueup.events import JobsUnserved, ScheduleChanged, ScheduleRetired, ScheduleUndeclared
from trueup.schedules import Cron
from trueup.store.workers import Identity
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def fleet(database_url: str, clock: ManualClock) -> AsyncIterator[Fleet]:
    fleet = Fleet(database_url, clock)
    yield fleet
    await fleet.close()


# -- retiring -------------------------------------------------------------------------------------------------------------


async def test_a_schedule_removed_from_the_code_is_retired_after_the_grace_with_a_warning(fleet: Fleet) -> None:
    old = await fleet.start(crons("kept", "gone"))
    await old.stop()
    await fleet.start(crons("kept"))
    await fleet.live(0.75)
    assert fleet.states() == {"kept": "active", "gone": "active"}
    assert fleet.said(ScheduleUndeclared) == ["gone"], "the log says so at once, and once"
    await fleet.live(0.5)
    assert fleet.states() == {"kept": "active", "gone": "retired"}
    assert fleet.said(ScheduleRetired) == ["gone"]


async def test_a_schedule_removed_together_with_its_queue_is_retired(fleet: Fleet) -> None:
    old = await fleet.start(crons("kept"), crons("gone", queue="reports"))
    await old.stop()
    await fleet.start(crons("kept"))
    await fleet.live(1.5)
    assert fleet.states() == {"kept": "active", "gone": "retired"}


async def test_a_renamed_schedule_of_a_named_service_is_retired_under_its_old_name(fleet: Fleet) -> None:
    await (await fleet.start(crons("before"), service="shop")).stop()
    await fleet.start(crons("after"), service="shop")
    await fleet.live(1.5)
    assert fleet.states() == {"before": "retired", "after": "active"}


@pytest.mark.parametrize("named", [{}, {"service": "shop"}], ids=["unnamed", "named"])
async def test_a_restarting_instance_of_the_old_release_retires_nothing(fleet: Fleet, named: dict[str, str]) -> None:
    await fleet.start(crons("kept", "new"), **named)
    old = await fleet.start(crons("kept"), **named)
    for _ in range(3):
        await fleet.live(1)
        await old.stop()
        await old.start()
    assert fleet.states() == {"kept": "active", "new": "active"}
    assert not fleet.said(ScheduleRetired)


@pytest.mark.parametrize("named", [({}, {}), ({"service": "a"}, {"service": "b"}), ({"service": "a"}, {})], ids=str)
async def test_a_service_that_is_down_keeps_its_schedules_though_another_shares_its_queue(
    fleet: Fleet, named: tuple[dict[str, str], dict[str, str]]
) -> None:
    down = await fleet.start(crons("theirs"), **named[0])
    await fleet.start(crons("ours"), **named[1])
    await down.stop()
    await fleet.live(5)
    assert fleet.states() == {"ours": "active", "theirs": "active"}
    assert fleet.said(ScheduleUndeclared) == ["theirs"], "it fires for nobody, and the log says so"


async def test_after_a_downtime_the_first_worker_does_not_retire_the_others_schedules(fleet: Fleet) -> None:
    full = await fleet.start(crons("kept", "nightly"))
    await full.stop()
    fleet.clock.advance(days=3)
    await fleet.start(crons("kept"))
    await fleet.live(0.5)
    assert fleet.states()["nightly"] == "active"
    await full.start()
    await fleet.live(2)
    assert fleet.states()["nightly"] == "active"


async def test_two_roles_of_one_release_do_not_retire_each_others(fleet: Fleet) -> None:
    """An instance without the scheduler is no later release of one that has it."""
    scheduler = await fleet.start(jobs("work"), crons("nightly"), release="1.2")
    await fleet.start(jobs("work"), release="1.2")
    await scheduler.stop()
    await fleet.live(3)
    assert fleet.states() == {"nightly": "active"}


async def test_a_paused_schedule_keeps_the_pause_that_a_person_gave_it(fleet: Fleet) -> None:
    old = await fleet.start(crons("kept", "gone"))
    await old.app.schedules.pause("gone", "on holiday")
    await old.stop()
    await fleet.start(crons("kept"))
    await fleet.live(3)
    assert fleet.states() == {"kept": "active", "gone": "paused"}


async def test_what_an_older_release_of_trueup_declares_is_not_retired(fleet: Fleet) -> None:
    """Its workers leave no declaration: while one serves the queue, or nothing is known at all, nothing is judged."""
    pod = await fleet.start(crons("ours"))
    other = App(fleet.url, clock=fleet.clock)
    crons("theirs")(other)
    await pod.app.store.schedules.put(other._schedules["theirs"])
    old = Identity(uuid4(), "host", 1, None, ("default",), 10)
    await pod.app.store.workers.register(old, timedelta(days=1))
    await fleet.live(3)
    assert not fleet.said(ScheduleUndeclared)
    await pod.app.store.workers.leave(old.holder)
    await fleet.live(3)
    assert fleet.states() == {"theirs": "active", "ours": "active"}
    assert fleet.said(ScheduleUndeclared) == ["theirs"], "a person may retire it"


# -- coming back ----------------------------------------------------------------------------------------------------------


async def test_a_retired_schedule_that_is_declared_again_comes_back_by_itself(fleet: Fleet) -> None:
    old = await fleet.start(crons("kept", "gone"))
    await old.stop()
    await fleet.start(crons("kept"))
    await fleet.live(1.5)
    assert fleet.states()["gone"] == "retired"
    await old.start()
    assert fleet.states()["gone"] == "active"


async def test_what_an_older_release_retired_at_its_start_comes_back_without_a_lost_tick(fleet: Fleet) -> None:
    pod = await fleet.start(crons("hourly"))
    await fleet.live(0.5)
    await pod.app.store.schedules.retire(["hourly"], "no longer declared in the code")
    fleet.clock.advance(minutes=45)  # past a tick
    await pod.pass_by()
    assert fleet.states() == {"hourly": "active"}
    await pod.worker.worker.ticker.plan()  # type: ignore[union-attr]
    assert fleet.one("select count(*) from trueup.ticks where outcome = 'fired'") == 1
    fleet.clock.advance(minutes=2)
    assert (await pod.app.schedules.audit("1d")).clean


LOSSES = {
    "schedules": "delete from trueup.schedules; delete from trueup.schedule_versions",
    "declarations": "delete from trueup.declarations",
    "lanes": "delete from trueup.lanes",
    "schedules and their record": "delete from trueup.schedules; delete from trueup.declarations; delete from trueup.lanes",
    "an older declaration": """update trueup.schedules set spec = '{"kind": "every", "interval": "1h", "anchor": "1970-01-01T00:00:00+00:00"}',
                               version = version + 1""",
    "a retirement": "update trueup.schedules set state = 'retired', version = version + 1",
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_rows_that_a_restore_has_lost_are_declared_again_without_a_restart(fleet: Fleet, loss: str) -> None:
    pod = await fleet.start(crons("nightly"), jobs("limited", limit=1))
    wanted = (await pod.app.store.schedules.get("nightly")).spec
    fleet.run(LOSSES[loss])
    fleet.clock.advance(seconds=10)
    await pod.pass_by()
    stored = await pod.app.store.schedules.get("nightly")
    assert (stored.state, stored.spec) == ("active", wanted)
    assert fleet.one("select lane from trueup.lanes") == "@limited"
    assert fleet.one("select schedules[1] from trueup.declarations") == "nightly"
    assert fleet.one("select declaration = (select digest from trueup.declarations) from trueup.workers")


async def test_a_new_life_declares_everything_in_a_database_made_anew(fleet: Fleet) -> None:
    pod = await fleet.start(crons("nightly"), jobs("limited", limit=1))
    fleet.run("drop schema trueup cascade")
    pod.app.store.migrate()
    await pod.pass_by()
    assert fleet.states() == {"nightly": "active"}
    assert fleet.one("select lane from trueup.lanes") == "@limited"


# -- two releases that differ ---------------------------------------------------------------------------------------------


def spec_of(fleet: Fleet) -> str:
    return str(fleet.one("select spec->>'expr' from trueup.schedules where name = 'nightly'"))


async def test_a_schedule_follows_the_living_worker_that_started_last_and_does_not_flap(fleet: Fleet) -> None:
    old = await fleet.start(crons("nightly", expr="0 1 * * *"))
    fleet.clock.advance(seconds=1)
    await fleet.start(crons("nightly", expr="0 2 * * *"))
    assert spec_of(fleet) == "0 2 * * *"
    await fleet.live(1)
    version = fleet.one("select version from trueup.schedules")
    await old.stop()
    await old.start()
    assert spec_of(fleet) == "0 1 * * *"
    await fleet.live(1)
    assert (spec_of(fleet), fleet.one("select version from trueup.schedules")) == ("0 1 * * *", version + 1)
    await old.stop()
    await fleet.live(0.25)
    assert spec_of(fleet) == "0 2 * * *", "the last living worker's declaration counts"


async def test_an_instance_that_lost_its_lease_does_not_overwrite_a_newer_schedule(fleet: Fleet) -> None:
    old = await fleet.start(crons("nightly", expr="0 1 * * *"))
    fleet.clock.advance(seconds=1)
    await fleet.start(crons("nightly", expr="0 2 * * *"))
    await old.worker.worker.register()  # type: ignore[union-attr]
    assert spec_of(fleet) == "0 2 * * *"


# -- lanes ----------------------------------------------------------------------------------------------------------------

CONTROLS: dict[str, dict[str, Any]] = {
    "limit": {"limit": 1},
    "rate": {"rate": Rate(100, timedelta(seconds=1), burst=100)},
    "fairness": {"fair_by": "tenant"},
}


@pytest.mark.parametrize("control", CONTROLS)
async def test_jobs_in_a_lane_that_no_worker_serves_any_more_are_adopted_while_workers_run(
    fleet: Fleet, control: str
) -> None:
    old = await fleet.start(jobs("send", **CONTROLS[control]))
    new = await fleet.start(jobs("send"))
    await old.app.registry["send"].enqueue()
    await new.pass_by()
    assert fleet.one("select lane from trueup.jobs") == "@send", "a living worker serves it, within its limits"
    await old.stop()
    await new.pass_by()
    assert fleet.one("select lane from trueup.jobs") == "default"
    await old.app.registry["send"].enqueue()  # a producer that was not replaced yet
    assert await new.worker.run_pending() == 1  # type: ignore[union-attr]
    await new.pass_by()
    assert await new.worker.run_pending() == 1  # type: ignore[union-attr]


async def test_a_revived_job_goes_to_the_lane_that_running_workers_want(fleet: Fleet) -> None:
    old = await fleet.start(jobs("send", limit=1))
    await old.app.registry["send"].enqueue()
    fleet.bury_all()
    job_id = fleet.one("select id from trueup.history")
    await old.stop()
    new = await fleet.start(jobs("send"))
    await new.app.jobs.revive([job_id])
    assert fleet.one("select lane from trueup.jobs") == "default"


async def test_a_schedule_made_at_run_time_fires_into_the_lane_that_running_workers_want(fleet: Fleet) -> None:
    old = await fleet.start(jobs("send", limit=1))
    await old.app.schedules.create("remind", Cron("* * * * *"), old.app.registry["send"].call())
    new = await fleet.start(jobs("send"))
    await new.app.store.schedules.trigger("remind")
    assert fleet.one("select lane from trueup.jobs") == "@send"
    await old.stop()
    fleet.clock.advance(seconds=1)
    await new.app.store.schedules.trigger("remind")
    assert fleet.one("select lane from trueup.jobs order by id desc limit 1") == "default"


# -- kinds that nobody runs -----------------------------------------------------------------------------------------------


async def test_a_kind_that_no_living_worker_knows_is_named_in_a_warning(fleet: Fleet) -> None:
    new = await fleet.start(jobs("send", "report"))
    await fleet.start(jobs("send"))
    await new.app.registry["report"].enqueue()
    await fleet.live(0.25)
    assert not fleet.said(JobsUnserved, "kind"), "one worker knows it"
    await new.stop()
    await fleet.live(0.5)
    assert fleet.said(JobsUnserved, "kind") == ["report"], "said once"


async def test_a_queue_that_no_living_worker_serves_is_named_too(fleet: Fleet) -> None:
    pod = await fleet.start(jobs("send"))
    await pod.app.registry["send"].using(queue="elsewhere").enqueue()
    await fleet.live(0.25)
    assert fleet.said(JobsUnserved, "queue") == ["elsewhere"]


async def test_many_jobs_of_known_kinds_do_not_hide_one_that_waits_for_ever(fleet: Fleet) -> None:
    pod = await fleet.start(jobs("send"))
    other = App(fleet.url, clock=fleet.clock)
    jobs("report")(other)
    await other.registry["report"].enqueue()
    fleet.clock.advance(seconds=1)
    await pod.app.registry["send"].enqueue_many([()] * 500)
    await fleet.live(0.25)
    assert fleet.said(JobsUnserved, "kind") == ["report"]
    await other.close()


async def test_old_declarations_are_deleted_except_a_schedules_last_one(
    fleet: Fleet,
) -> None:
    for extra in ("a", "b", "c"):
        await (await fleet.start(crons("nightly"), jobs(extra))).stop()
    fleet.clock.advance(days=30)
    await fleet.start(jobs("unrelated"))
    await fleet.live(0.25)
    assert fleet.one("select count(*) from trueup.declarations where 'nightly' = any(schedules)") == 1
    assert fleet.said(ScheduleChanged) == ["nightly"]


@pytest.mark.parametrize("names", ["array['nobody']", "array[null]::text[]", "'{}'"])
async def test_a_record_that_was_changed_by_hand_is_written_anew_by_the_next_worker(fleet: Fleet, names: str) -> None:
    await fleet.start(crons("nightly"))
    fleet.run(f"update trueup.declarations set schedules = {names}")
    await fleet.start(crons("nightly"))
    assert fleet.one("select schedules from trueup.declarations") == ["nightly"]
    assert fleet.states() == {"nightly": "active"}
