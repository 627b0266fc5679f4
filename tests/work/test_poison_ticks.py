"""One bad schedule never blocks the others: what PostgreSQL, or its own row, can refuse about its tick.

In every cell twelve schedules are due together with a culprit. All of them fire in that same pass of the planner. The culprit is
named with its true reason, in an event and where people look, is tried again later and later, and fires once it is cured.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.support.watching import Watched
from trueup import App
from trueup.clock import elapsed
from trueup.events import ScheduleRefused
from trueup.store import planning, schedules
from trueup.store.db.connect import RETRYABLE
from trueup.store.planning import StillBehind
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker
from trueup.work import declarer, ticker
from trueup.work.ticker import MAX_WAIT, SPREAD

pytestmark = pytest.mark.asyncio

GOOD = [f"good-{n:02}" for n in range(12)]
NAMES = ["culprit", *GOOD]


@dataclass(frozen=True)
class Cell:
    """What is done to the database, what undoes it, and what has to be said."""

    poison: str
    reason: str
    cure: str = ""


def trigger(table: str, body: str, *, when: str = "before insert", deferred: bool = False) -> Cell:
    kind = "constraint trigger" if deferred else "trigger"
    late = "deferrable initially deferred" if deferred else ""
    named = {"ticks": "schedule", "jobs": "schedule", "schedules": "name", "schedule_versions": "name"}[table]
    return Cell(
        f"""
        create function refuse() returns trigger language plpgsql as $$
        begin
          if new.{named} = 'culprit' then {body} end if;
          return new;
        end $$;
        create {kind} refuse {when} on trueup.{table} {late} for each row execute function refuse();
        """,
        "not this one",
        f"drop trigger refuse on trueup.{table}",
    )


def raising(sqlstate: str) -> str:
    return f"raise exception 'not this one' using errcode = '{sqlstate}';"


def changed(column: str, value: str, reason: str) -> Cell:
    """The row says something that cannot be; the cure is what it said before."""
    return Cell(
        f"create table before as table trueup.schedules; update trueup.schedules set {column} = {value} where name = 'culprit'",
        reason,
        f"update trueup.schedules as s set {column} = b.{column} from before as b where b.name = s.name and s.name = 'culprit'",
    )


SQLSTATES = ("22001", "23505", "40001", "40P01", "42501", "53100", "54000", "55P03", "57014", "57P01", "P0001", "XX000")
POISONS = {
    **{f"the ledger refuses with {state}": trigger("ticks", raising(state)) for state in SQLSTATES},
    "jobs refuse": trigger("jobs", raising("P0001")),
    "the watermark is refused": trigger("schedules", raising("P0001"), when="before update"),
    "the commit is refused": trigger("jobs", raising("23503"), when="after insert", deferred=True),
    "the job vanishes": Cell(
        trigger("jobs", "return null;").poison, "no job was stored", "drop trigger refuse on trueup.jobs"
    ),
    "the watermark stays": Cell(
        trigger("schedules", "return null;", when="before update").poison,
        "was not changed",
        "drop trigger refuse on trueup.schedules",
    ),
    "a unique index": Cell(
        """
        create unique index once on trueup.jobs ((args->>'only')) where args ? 'only';
        update trueup.schedules set args = '{"only": "one"}' where name = 'culprit';
        insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts, enqueued_at)
        values ('first', 'other', 'other', now(), now(), '{"only": "one"}', 1, now());
        """,
        "duplicate key",
        "drop index trueup.once",
    ),
    "a lane too long to announce": changed("lane", "repeat('x', 9000)", "SQLSTATE"),
    "a number beyond all bounds": changed("policy", """policy || '{"pause_after": 99999999999}'""", "out of range"),
    "a policy that is a list": changed("policy", "'[]'", ""),
}


@asynccontextmanager
async def planner(
    url: str, clock: ManualClock, names: Sequence[str] = NAMES
) -> AsyncIterator[tuple[App, ManualWorker, Watched]]:
    app = App(url, clock=clock)

    async def work() -> None: ...

    for name in names:
        app.cron("* * * * *", name=name, overlap="allow")(work)
    watched = Watched(app)
    worker = ManualWorker(app)
    try:
        await worker.begin()
        yield app, worker, watched
    finally:
        await worker.end()
        await app.close()


async def plan(worker: ManualWorker, passes: int = 1) -> None:
    """Passes of the planner, as its loop makes them: what a server says once may be asked for again."""
    for _ in range(passes):
        with suppress(*RETRYABLE):
            await worker.worker.ticker.run_once()


async def fired(app: App) -> dict[str, int]:
    rows = await app.store.pool.fetch(b"select schedule, count(*) from trueup.ticks where outcome = 'fired' group by 1")
    return dict(rows)


async def refusal(app: App) -> dict[str, Any] | None:
    """What `schedules list` and `schedules show` say about the culprit."""
    (listed,) = [each for each in await app.schedules.list() if each["name"] == "culprit"]
    shown = await app.schedules.show("culprit")
    assert shown["refused"] == listed["refused"]
    refused: dict[str, Any] | None = listed["refused"]
    return refused


@pytest.mark.parametrize("poison", POISONS)
async def test_only_the_culprit_waits(database_url: str, clock: ManualClock, poison: str) -> None:
    cell = POISONS[poison]
    async with planner(database_url, clock) as (app, worker, watched):
        await app.store.pool.fetch(cell.poison.encode())
        clock.advance(minutes=1)
        await plan(worker, passes=2)
        assert await fired(app) == dict.fromkeys(GOOD, 1)
        (event,) = watched.of(ScheduleRefused)
        assert event.schedule == "culprit"
        assert cell.reason in event.error
        found = await refusal(app)
        assert found is not None
        assert found["error"] == event.error
        assert (await app.store.views.planning())["refused"] == ["culprit"]

        clock.advance(minutes=1)
        await plan(worker)
        assert await fired(app) == dict.fromkeys(GOOD, 2)
        assert len(watched.of(ScheduleRefused)) == 2

        await app.store.pool.fetch(cell.cure.encode())
        clock.advance(minutes=1)
        await plan(worker, passes=2)
        assert await fired(app) == {**dict.fromkeys(GOOD, 3), "culprit": (await fired(app))["culprit"]}
        assert await refusal(app) is None
        assert (await app.store.views.planning())["refused"] == []


async def test_it_is_tried_again_later_and_later(database_url: str, clock: ManualClock) -> None:
    cell = POISONS["jobs refuse"]
    async with planner(database_url, clock) as (app, worker, watched):
        await app.store.pool.fetch(cell.poison.encode())
        clock.advance(minutes=1)
        await plan(worker)
        for n in range(1, 9):
            (*_, last) = watched.of(ScheduleRefused)
            assert (last.refusals, last.retry_in_s) == (n, min(60, 2 ** (n - 1)))
            clock.advance(seconds=last.retry_in_s - 0.5)
            await plan(worker)
            assert len(watched.of(ScheduleRefused)) == n
            clock.advance(seconds=0.5)
            await plan(worker)
        assert set(await fired(app)) == {*GOOD}


async def test_many_culprits(database_url: str, clock: ManualClock) -> None:
    """Each is named in its first pass, and whatever can be fired is."""
    cell = trigger("jobs", raising("P0001"))
    async with planner(database_url, clock) as (app, worker, watched):
        await app.store.pool.fetch(cell.poison.replace("= 'culprit'", "<> 'good-07'").encode())
        clock.advance(minutes=1)
        await plan(worker)
        assert await fired(app) == {"good-07": 1}
        assert {event.schedule for event in watched.of(ScheduleRefused)} == {*NAMES} - {"good-07"}


async def test_a_second_worker_learns_it_from_the_first(database_url: str, clock: ManualClock) -> None:
    cell = POISONS["jobs refuse"]
    async with (
        planner(database_url, clock) as (app, worker, _),
        planner(database_url, clock) as (_, other, watched),
    ):
        await app.store.pool.fetch(cell.poison.encode())
        clock.advance(minutes=1)
        await plan(worker)
        clock.advance(milliseconds=500)
        await plan(other)
        assert watched.of(ScheduleRefused) == []


async def test_the_refusal_itself_is_refused(database_url: str, clock: ManualClock) -> None:
    """Then each worker remembers it on its own."""
    cell = POISONS["jobs refuse"]
    async with planner(database_url, clock) as (app, worker, watched):
        await app.store.pool.fetch(cell.poison.encode())
        await app.store.pool.fetch(
            b"drop table trueup.schedule_refusals cascade; create view trueup.schedule_refusals as select ''::text as name, 1::bigint as version, ''::text as error, 1 as refusals, now() as refused_at, now() as retry_at where false"
        )
        clock.advance(minutes=1)
        await plan(worker)
        clock.advance(minutes=1)
        await plan(worker)
        assert await fired(app) == dict.fromkeys(GOOD, 2)
        assert {event.schedule for event in watched.of(ScheduleRefused)} == {"culprit"}


@pytest.mark.parametrize(("state", "seconds"), [("53100", 1), ("55P03", 1), ("P0001", 60)])
async def test_a_refused_refusal_that_may_pass_is_soon_forgotten(
    database_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, state: str, seconds: float
) -> None:
    """A full disk refuses the tick and the note about it. With room again, the tick must not wait for a minute."""
    note = f"""
        create function refuse_note() returns trigger language plpgsql as $$ begin {raising(state)} end $$;
        create trigger refuse before insert on trueup.schedule_refusals for each row execute function refuse_note();
        """
    async with planner(database_url, clock) as (app, worker, watched):
        await app.store.pool.fetch(trigger("jobs", raising(state)).poison.encode())
        await app.store.pool.fetch(note.encode())
        clock.advance(minutes=1)
        pause = await worker.worker.ticker.run_once()
        (event,) = watched.of(ScheduleRefused)
        assert (event.schedule, event.retry_in_s) == ("culprit", seconds)
        assert 0 < pause <= min(seconds, MAX_WAIT) + SPREAD
        await app.store.pool.fetch(b"drop trigger refuse on trueup.jobs")
        monkeypatch.setattr(ticker, "elapsed", lambda: elapsed() + seconds)
        await worker.worker.ticker.run_once()
        assert (await fired(app))["culprit"] == 1


# -- what people do about it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["paused", "changed in the code"])
async def test_people_can_act_on_the_culprit(database_url: str, clock: ManualClock, what: str) -> None:
    """Its ticks cannot be settled first, and that must not keep anybody from pausing or mending it."""
    cell = POISONS["the ledger refuses with P0001"]
    async with planner(database_url, clock) as (app, worker, _):
        await app.store.pool.fetch(cell.poison.encode())
        clock.advance(minutes=1)
        await plan(worker)
        if what == "paused":
            assert await app.schedules.pause("culprit")
            assert (await app.schedules.show("culprit"))["state"] == "paused"
        else:
            newer = App(database_url, clock=clock)

            @newer.cron("*/2 * * * *", name="culprit")
            async def culprit() -> None: ...

            other = ManualWorker(newer)
            await other.begin()
            assert (await newer.schedules.show("culprit"))["spec"]["expr"] == "*/2 * * * *"
            await other.end()
            await newer.close()
        assert await refusal(app) is None


async def test_a_declaration_that_is_refused_keeps_no_worker_from_starting(
    database_url: str, clock: ManualClock
) -> None:
    cell = trigger("schedules", raising("P0001"), when="before insert or update")
    app = App(database_url, clock=clock)
    await app.open()
    await app.store.pool.fetch(cell.poison.encode())
    await app.close()
    async with planner(database_url, clock) as (app, worker, watched):
        assert [each["name"] for each in await app.schedules.list()] == GOOD
        (event,) = watched.of(ScheduleRefused)
        assert event.schedule == "culprit"
        await app.store.pool.fetch(cell.cure.encode())
        await worker.worker.declarer.look()
        assert [each["name"] for each in await app.schedules.list()] == NAMES


# -- in time -------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("slow", ["locked", "sleeping"])
async def test_waiting_for_the_culprit_delays_the_others_by_seconds_at_most(
    database_url: str, clock: ManualClock, slow: str
) -> None:
    """A lock that somebody holds, a trigger that does not end: a statement of ours may take 27 s otherwise."""
    names = NAMES[:4]
    async with (
        planner(database_url, clock, names) as (app, worker, watched),
        await psycopg.AsyncConnection.connect(database_url) as holder,
    ):
        if slow == "sleeping":
            await app.store.pool.fetch(trigger("jobs", "perform pg_sleep(60);").poison.encode())
        else:
            await app.store.pool.fetch(
                b"""update trueup.schedules set policy = policy || '{"overlap": "cancel_running"}'"""
            )
            clock.advance(minutes=1)
            await plan(worker)
            await holder.execute("select from trueup.jobs where schedule = 'culprit' for update")
        before = await fired(app)
        clock.advance(minutes=1)
        began = elapsed()
        await plan(worker)
        assert elapsed() - began < 15
        assert await fired(app) == {**before, **{name: before.get(name, 0) + 1 for name in names[1:]}}
        (event,) = watched.of(ScheduleRefused)
        assert "timeout" in event.error
        await holder.rollback()


async def test_a_schedule_that_is_years_behind_keeps_nobody_waiting(
    database_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without a battery begins its days in 1970, and its clock is put right later."""
    for module in (schedules, declarer):
        monkeypatch.setattr(module, "SETTLE_FOR", 0.2)
    monkeypatch.setattr(planning, "DECIDE_FOR", 0.0)  # one schedule in a pass, as with a rule that takes long
    behind = "update trueup.schedules set decided_until = 'epoch', next_due_at = 'epoch' where name = 'culprit'"
    async with planner(database_url, clock) as (app, worker, _):
        await app.store.pool.fetch(behind.encode())
        clock.advance(minutes=1)
        await plan(worker, passes=len(GOOD))
        assert set(await fired(app)) == set(GOOD)
        with pytest.raises(StillBehind, match="'culprit' is far behind"):
            await app.schedules.pause("culprit")
    started = elapsed()
    async with planner(database_url, clock) as (app, _, watched):
        assert elapsed() - started < MAX_WAIT / 2
        (refused,) = watched.of(ScheduleRefused)
        assert (refused.schedule, "far behind" in refused.error) == ("culprit", True)
        assert await app.schedules.pause(GOOD[0])
