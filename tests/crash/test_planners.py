"""Five planner processes that are killed, restarted, told the wrong time and parted from the database: no tick is lost or doubled."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.crash.planner import EVERY_SECOND
from tests.crash.test_limits import statements_logged
from tests.support.database import TestServer
from tests.support.faketime import faketime_env, remove_leftovers
from tests.support.matrix import count
from tests.support.processes import Fleet
from tests.support.waiting import wait_until
from trueup import App
from trueup.schedules import Cron
from trueup.schedules.policy import SchedulePolicy
from trueup.store.schedules import Entry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PLANNERS = 5
SECONDS = int(os.environ.get("SECONDS_OF_PLANNING", count(10, proof=20)))  # of killing; for longer runs by hand
SECOND = timedelta(seconds=1)
HANDFUL = 6  # statements a second of the whole idle fleet


class Planners:
    """The fleet, and what its database says about the ticks."""

    def __init__(self, url: str, fleet: Fleet) -> None:
        self.url = url
        self.fleet = fleet

    def start(self, *environments: dict[str, str]) -> None:
        started = [
            self.fleet.launch(base=environments[n % len(environments)] if environments else os.environ)
            for n in range(PLANNERS)
        ]
        for planner in started:
            self.fleet.wait_registered(planner)

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), params).fetchall()

    def scalar(self, statement: str, *params: Any) -> Any:
        return self.query(statement, *params)[0][0]

    def fired(self) -> int:
        return int(self.scalar("select count(*) from trueup.ticks where outcome = 'fired'"))

    def wait_fired(self, more: int) -> None:
        """Return when so many more ticks have been fired."""
        wanted = self.fired() + more
        wait_until(lambda: self.fired() >= wanted, f"{more} more ticks are fired", timeout=30)

    def finish(self) -> datetime:
        """Let everything due by now be decided and run; stop the fleet. Returns the moment up to which all is decided."""
        now = self.scalar("select clock_timestamp()")
        undecided = "select count(*) from trueup.schedules where state = 'active' and next_due_at <= %s"
        running = "select count(*) from trueup.jobs where due_at <= %s"
        wait_until(lambda: self.scalar(undecided, now) == 0, "everything due is decided", timeout=30)
        wait_until(lambda: self.scalar(running, now) == 0, "every run has ended", timeout=30)
        self.fleet.stop_all()
        return now  # type: ignore[no-any-return]

    def prove(self, name: str, until: datetime) -> list[datetime]:
        """I1, I2 and I14: what was fired is exactly what each version of the schedule expects in its own time."""
        expected = [
            (tick, version)
            for version, step, since, end in self._versions(name, until)
            for tick in seconds(since, end)
            if tick.second % step == 0
        ]
        ledger = self.query(
            "select due_at, version, outcome, reason from trueup.ticks where schedule = %s and due_at <= %s order by due_at",
            name,
            until,
        )
        assert [row for row in ledger if row[2:] != ("fired", None)] == []
        found = [(due_at, version) for due_at, version, *_ in ledger]
        assert sorted(set(expected) - set(found)) == [], "ticks that are missing"
        assert sorted(set(found) - set(expected)) == [], "ticks that nobody asked for"
        runs = Counter(
            due_at
            for (due_at,) in self.query(
                "select due_at from (select schedule, due_at from trueup.jobs union all"
                " select schedule, due_at from trueup.history) as every where schedule = %s and due_at <= %s",
                name,
                until,
            )
        )
        assert runs == Counter(tick for tick, _ in expected), "each tick has one job, and no job is without a tick"
        return [tick for tick, _ in expected]

    def _versions(self, name: str, until: datetime) -> Iterator[tuple[int, int, datetime, datetime]]:
        """(version, every how many seconds, from when, until when) of each time it was active."""
        rows = self.query(
            "select version, state, spec ->> 'expr', since,"
            " coalesce(lead(since) over (order by version), %s) from trueup.schedule_versions where name = %s",
            until,
            name,
        )
        for version, state, expr, since, end in rows:
            if state == "active":
                step = re.fullmatch(r"\*(?:/(\d+))?( \*){5}", expr)
                assert step is not None
                yield version, int(step[1] or 1), since, min(end, until)


def seconds(since: datetime, until: datetime) -> Iterator[datetime]:
    """The whole seconds after one moment up to another."""
    second = since.replace(microsecond=0) + SECOND
    while second <= until:
        yield second
        second += SECOND


@pytest.fixture
def planners(database_url: str, tmp_path: Path) -> Iterator[Planners]:
    with Fleet("tests.crash.planner", database_url, tmp_path) as fleet:
        yield Planners(database_url, fleet)


def test_five_planners_one_of_them_killed_every_few_seconds_fire_each_second_once(planners: Planners) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    rng = random.Random(seed)
    planners.start()
    kills, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        planners.wait_fired(2)
        time.sleep(rng.uniform(0, 1))  # the random moment of the kill is the point
        planners.fleet.kill(rng.choice(planners.fleet.alive))
        kills += 1
        planners.fleet.launch()
    ticks = planners.prove("secondly", planners.finish())
    assert kills >= SECONDS // 5
    assert len(ticks) >= SECONDS
    assert planners.scalar("select count(*) from trueup.schedule_versions") == 1, "they all declared the same"


@pytest.mark.proof(beside="test_five_planners_one_of_them_killed_every_few_seconds_fire_each_second_once")
def test_wrong_clocks_and_a_restarted_database_do_not_change_what_is_fired(tmp_path: Path) -> None:
    clocks = [faketime_env(offset) for offset in ("+2", "-2", "+1h", "-1h")]
    with (
        TestServer(tmp_path / "pg", synchronous_commit="on", full_page_writes="on") as server,
        server.database() as url,
        Fleet("tests.crash.planner", url, tmp_path) as fleet,
    ):
        planners = Planners(url, fleet)
        planners.start(dict(os.environ), *clocks)
        began = planners.scalar("select since from trueup.schedule_versions")
        planners.wait_fired(3)
        server.cluster.restart("immediate")
        planners.wait_fired(4)
        server.cluster.restart("fast")
        planners.wait_fired(3)
        until = planners.finish()
        ticks = planners.prove("secondly", until)
        assert len(ticks) >= 10
        early = "select count(*) from trueup.ticks where decided_at < due_at or decided_at > due_at + interval '30 s'"
        assert planners.scalar(early) == 0
        assert until - began < timedelta(minutes=2)
    remove_leftovers()


def test_a_planner_killed_in_the_middle_of_a_tick_leaves_all_of_it_to_the_next(planners: Planners) -> None:
    victim = planners.fleet.launch(fault="mid_tick:kill:2")
    planners.fleet.expect_killed(victim)
    ((decided_until, next_due_at),) = planners.query("select decided_until, next_due_at from trueup.schedules")
    ledger = [due_at for (due_at,) in planners.query("select due_at from trueup.ticks order by due_at")]
    assert ledger[-1] == decided_until < next_due_at, "the second pass left nothing in the ledger"
    assert next_due_at < planners.scalar("select clock_timestamp()"), "the fault landed in a pass with something due"
    assert planners.scalar("select count(*) from trueup.jobs where due_at > %s", decided_until) == 0
    planners.fleet.start()
    planners.wait_fired(2)
    ticks = planners.prove("secondly", planners.finish())
    assert next_due_at in ticks


def test_a_schedule_changed_and_deleted_while_it_fires_loses_and_doubles_nothing(planners: Planners) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    planners.start()
    changes = asyncio.run(change_all_the_time(planners.url, random.Random(seed), seconds=count(4, proof=10)))
    until = planners.finish()
    ticks = planners.prove("edited", until)
    planners.prove("secondly", until)
    assert len(ticks) >= 2
    versions = planners.scalar("select count(*) from trueup.schedule_versions where name = 'edited'")
    assert versions == sum(changes.values())


async def change_all_the_time(url: str, rng: random.Random, *, seconds: float) -> Counter[str]:
    """Edit, pause, resume, delete and make anew at random moments, half of them close to a tick."""
    changed = Counter[str]()
    kinds = [
        "edit",
        "edit",
        "edit",
        "edit",
        "pause",
        "resume",
        "resume",
        "delete",
    ]  # so that it is active most of the time
    async with App(url) as app:
        schedules = app.store.schedules
        begun = time.monotonic()
        while time.monotonic() < begun + seconds or not all(changed[kind] for kind in kinds) or await ticks(app) < 2:
            assert time.monotonic() < begun + 60, f"not every kind of change came about, or it hardly fired: {changed}"
            kind = rng.choice(kinds)
            match kind:
                case "edit":
                    done = await schedules.put(edited(rng.choice([EVERY_SECOND, "*/2 * * * * *", "*/3 * * * * *"])))
                case "pause":
                    done = bool(await schedules.pause(["edited"], "an incident"))
                case "resume":
                    done = bool(await schedules.resume(["edited"]))
                case _:
                    done = await schedules.delete("edited")
            changed[kind] += done
            await asyncio.sleep(await pause_until_a_race(app, rng) if rng.random() < 0.5 else rng.uniform(0, 0.3))
        changed["resume"] += bool(await schedules.resume(["edited"]))
        changed["edit"] += await schedules.put(edited("*/5 * * * * *"))
    return changed


async def ticks(app: App) -> int:
    """How often the schedule that is edited has fired."""
    ((fired,),) = await app.store.pool.fetch(b"select count(*) from trueup.ticks where schedule = 'edited'")
    return int(fired)


async def pause_until_a_race(app: App, rng: random.Random) -> float:
    """Seconds until just before, at, or just after the next full second of the database, when the planners are at it."""
    ((passed,),) = await app.store.pool.fetch(b"select mod(extract(epoch from clock_timestamp()), 1)::float8")
    return max(0.0, 1 - float(passed) + rng.uniform(-0.02, 0.04))


def edited(expr: str) -> Entry:
    policy = SchedulePolicy(overlap="allow")
    return Entry("edited", "people", Cron(expr), policy, "secondly", "default", "default", 4)


def test_five_idle_planners_ask_the_database_a_few_things_a_second(
    server: TestServer, database_url: str, tmp_path: Path
) -> None:
    """Counted in the server's log: every statement of every worker, renewals and housekeeping included."""
    usual = {"TRUEUP_LEASE_FOR": "30s", "TRUEUP_RESCUE_EVERY": "10s", "TRUEUP_POLL_EVERY": "2s"}
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"alter database {name} set log_statement = 'all'".encode())
    with Fleet("tests.crash.planner", database_url, tmp_path, PLANNER_CRON="0 0 1 1 *", **usual) as fleet:
        Planners(database_url, fleet).start()
        # From here on nobody but the planners speaks to this database; others are not logged.
        after_start = time.monotonic() + 2
        wait_until(lambda: time.monotonic() > after_start, "the start is over")
        before, began = statements_logged(server), time.monotonic()
        wait_until(lambda: time.monotonic() > began + 10, "ten idle seconds have passed", timeout=15)
        asked = statements_logged(server) - before
        fleet.stop_all()
    print(f"{PLANNERS} idle planners: {asked / 10:.1f} statements a second")
    assert 1 <= asked <= 10 * HANDFUL  # none at all would mean that nothing was counted
