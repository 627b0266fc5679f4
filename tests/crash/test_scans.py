"""Scans whose processes are killed, stopped past their lease, several at once, and told the wrong time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.crash.scanner import CONCURRENCY, PAGE, TABLES
from tests.support.faketime import faketime_env, remove_leftovers
from tests.support.journal import read_journals
from tests.support.processes import Fleet
from tests.support.waiting import wait_until
from trueup.work.scans.scanning import SAVE_AT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ITEMS = 1_500
# What was handled and not kept when its process died: what is kept at once, the page that is not complete, what was in hand,
# and what was handled while the last one was being kept, on a machine that may be busy.
TAIL = SAVE_AT + PAGE + 2 * CONCURRENCY + 100

MIN_HANDLED = "select count(*), coalesce(min(n), 0), coalesce(sum(n - 1), 0) from (select count(ended) as n from effects.items group by item having count(ended) > 0) as each"
OVERLAPS = """
select count(*) from effects.items as this join effects.items as other
    on other.pid <> this.pid and other.began < this.ended and other.ended > this.began
"""
PEAK = """
select max(n) from (select (select count(*) from effects.items as other where other.began <= this.began and other.ended > this.began) as n
                      from effects.items as this) as overlapping
"""


class Scanning:
    def __init__(self, url: str, fleet: Fleet) -> None:
        self.url = url
        self.fleet = fleet

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), params).fetchall()

    def scalar(self, statement: str, *params: Any) -> Any:
        return self.query(statement, *params)[0][0]

    def saved(self) -> int:
        """Items up to the cursor that is kept."""
        return int(self.scalar("select coalesce(max(items), 0) from trueup.scans"))

    def wait_saved(self, items: int) -> None:
        wait_until(lambda: self.saved() >= items, f"{items} items are kept", timeout=30)

    def wait_completed(self, times: int = 1) -> None:
        query = "select count(distinct started_at) from effects.saves where not underway"
        wait_until(lambda: self.scalar(query) >= times, f"{times} scans are complete", timeout=60)

    def prove(self) -> int:
        """Stop the fleet. Every item was handled, cursors only moved on. Returns how many were handled again."""
        self.fleet.stop_all()
        assert self.fleet.crashed == []
        assert self.scalar("select not underway and cursor is null and items = %s from trueup.scans", ITEMS)
        handled, least, again = self.query(MIN_HANDLED)[0]
        assert (handled, least) == (ITEMS, 1)
        kept = [items for (items,) in self.query("select items from effects.saves order by id")]
        assert kept == sorted(kept), "a cursor was moved back"
        return int(again)


@pytest.fixture
def scanning(database_url: str, tmp_path: Path) -> Iterator[Scanning]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)
    with Fleet("tests.crash.scanner", database_url, tmp_path) as fleet:
        yield Scanning(database_url, fleet)


def test_after_a_kill_another_goes_on_from_the_cursor_and_repeats_little(scanning: Scanning) -> None:
    first = scanning.fleet.start()
    scanning.wait_saved(300)
    scanning.fleet.kill(first)
    cursor, saved = scanning.query("select cursor::int, items from trueup.scans")[0]
    assert 300 <= saved < ITEMS, "the fault did not land"
    second = scanning.fleet.start()
    scanning.wait_completed()
    assert scanning.query("select pid, cursor from effects.passes order by at") == [
        (first.pid, None),
        (second.pid, cursor),
    ]
    assert cursor == saved // PAGE
    assert scanning.prove() <= TAIL


@pytest.mark.proof(beside="test_after_a_kill_another_goes_on_from_the_cursor_and_repeats_little")
def test_killed_again_and_again_every_item_is_handled(scanning: Scanning) -> None:
    kills = 0
    while (saved := scanning.saved()) < ITEMS - 400:
        victim = scanning.fleet.start()
        scanning.wait_saved(saved + 250)
        scanning.fleet.kill(victim)
        kills += 1
    assert kills >= 3, "the fault did not land"
    scanning.fleet.start()
    scanning.wait_completed()
    assert scanning.prove() <= kills * TAIL


def test_one_stopped_past_its_lease_keeps_nothing_when_it_wakes(scanning: Scanning) -> None:
    sleeper = scanning.fleet.start()
    scanning.wait_saved(200)
    sleeper.send(signal.SIGSTOP)
    before = scanning.saved()
    other = scanning.fleet.start()
    scanning.wait_saved(before + 200)
    woken_at = scanning.scalar("select clock_timestamp()")
    sleeper.send(signal.SIGCONT)
    wait_until(lambda: lost_by(scanning) == {sleeper.pid}, "the sleeper knows that it lost the lease")
    assert scanning.scalar("select underway from trueup.scans"), "the fault did not land"
    scanning.wait_completed()
    begun = "select count(*) from effects.items where pid = %s and began > %s"
    assert scanning.scalar(begun, sleeper.pid, woken_at) <= CONCURRENCY  # those it was inside of
    assert scanning.query("select pid from effects.passes order by at") == [(sleeper.pid,), (other.pid,)]
    assert scanning.prove() <= TAIL


def lost_by(scanning: Scanning) -> set[int]:
    lines = read_journals(scanning.fleet.journals)
    return {line["process"] for line in lines if line.get("event") == "lease.lost"}


def test_of_three_processes_one_at_a_time_scans_within_its_concurrency(scanning: Scanning) -> None:
    for _ in range(3):
        scanning.fleet.launch(SCAN_EVERY="1s", SCAN_ITEMS="150")
    scanning.wait_completed(8)
    for worker in scanning.fleet.alive:
        scanning.fleet.wait_registered(worker)
    scanning.fleet.stop_all()
    assert scanning.scalar(OVERLAPS) == 0
    assert 1 < scanning.scalar(PEAK) <= CONCURRENCY
    starts = [at for (at,) in scanning.query("select distinct started_at from effects.saves order by 1")]
    assert all(later - earlier >= timedelta(seconds=1) for earlier, later in pairwise(starts))


def test_one_that_is_asked_to_stop_hands_over_at_once(scanning: Scanning) -> None:
    first = scanning.fleet.start()
    second = scanning.fleet.start()
    scanning.wait_saved(200)
    holder = scanning.scalar("select pid from effects.passes")
    (heir,) = {first.pid, second.pid} - {holder}
    (first if first.pid == holder else second).send(signal.SIGTERM)
    scanning.wait_completed()
    passes = scanning.query("select pid, cursor from effects.passes order by at")
    assert [pid for pid, _ in passes] == [holder, heir]
    assert passes[1][1] >= 200 // PAGE
    assert scanning.prove() <= PAGE + 2 * CONCURRENCY


@pytest.mark.proof(beside="test_of_three_processes_one_at_a_time_scans_within_its_concurrency")
def test_clocks_of_the_processes_decide_nothing(scanning: Scanning) -> None:
    try:
        for offset, rate in (("+1d", 1.0), ("-1d", 1.0), ("+0", 4.0)):
            base = faketime_env(offset, rate=rate)
            scanning.fleet.launch(base=base, SCAN_EVERY="2s", SCAN_ITEMS="100")
        scanning.wait_completed(4)
        for worker in scanning.fleet.alive:
            scanning.fleet.wait_registered(worker)
        scanning.fleet.stop_all()
    finally:
        remove_leftovers()
    starts = [at for (at,) in scanning.query("select distinct started_at from effects.saves order by 1")]
    apart = [later - earlier for earlier, later in pairwise(starts)]
    assert timedelta(seconds=2) <= min(apart) < timedelta(seconds=10)
    assert scanning.scalar(OVERLAPS) == 0
