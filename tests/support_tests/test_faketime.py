from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.faketime import SHARED_MEMORY, faketime_env, remove_leftovers, shift_clock, steered_env
from trueup.embedded.cluster import Cluster

HOUR = 3600.0

CLOCKS = """
import asyncio, json, sys, threading, time

def clocks():
    return {
        "wall": time.time(),
        "monotonic": time.monotonic(),
        "boottime": time.clock_gettime(time.CLOCK_BOOTTIME),
        "raw": time.clock_gettime(time.CLOCK_MONOTONIC_RAW),
    }

for command in sys.stdin:
    before = clocks()
    match command.strip():
        case "sleep": time.sleep(0.1)
        case "asyncio.sleep": asyncio.run(asyncio.sleep(0.1))
        case "wait": threading.Event().wait(0.1)
    print(json.dumps([before, clocks()]), flush=True)
"""

Clocks = dict[str, float]


class Child:
    """A Python process that tells what its clocks show before and after it does something."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLOCKS], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def does(self, command: str) -> tuple[Clocks, Clocks]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        before, after = json.loads(self.process.stdout.readline())
        return before, after

    def offset(self) -> float:
        """How far its wall clock is off, in seconds."""
        clocks, _ = self.does("nothing")
        return clocks["wall"] - time.time()


@contextmanager
def child(environment: dict[str, str]) -> Iterator[Child]:
    child = Child(environment)
    with child.process:
        yield child


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    yield
    remove_leftovers()


@pytest.mark.parametrize(("offset", "seconds"), [("+1h", HOUR), ("-1d", -24 * HOUR), ("+90", 90)])
def test_the_wall_clock_is_off_by_the_offset(offset: str, seconds: float) -> None:
    with child(faketime_env(offset)) as wrong:
        assert wrong.offset() == pytest.approx(seconds, abs=5)


def test_the_other_clocks_are_the_systems_own() -> None:
    with child(faketime_env("+1h")) as wrong:
        earliest = [time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)]
        clocks, _ = wrong.does("nothing")
        latest = [time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)]
    assert earliest[0] <= clocks["monotonic"] <= latest[0]
    assert earliest[1] <= clocks["boottime"] <= latest[1]


@pytest.mark.parametrize("waiting", ["sleep", "asyncio.sleep", "wait"])
def test_waiting_takes_as_long_as_ever(waiting: str) -> None:
    with child(faketime_env("-1d", rate=2)) as wrong:
        before, after = wrong.does(waiting)
    for clock in ("monotonic", "boottime", "raw"):
        assert 0.1 <= after[clock] - before[clock] < 2


def test_a_clock_may_run_twice_as_fast() -> None:
    with child(faketime_env("+0", rate=2)) as wrong:
        before, after = wrong.does("sleep")
    assert after["wall"] - before["wall"] >= 0.199


@pytest.mark.parametrize("base", [{}, {"FAKETIME": "+1h"}], ids=["right", "faked already"])
def test_a_steered_clock_is_stepped_while_the_program_runs(tmp_path: Path, base: dict[str, str]) -> None:
    steering = tmp_path / "clock"
    with child(steered_env(steering, {**os.environ, **base})) as wrong:
        for shifted, seconds in [(0, 0), (3600, 3600), (-3900, -300)]:
            shift_clock(steering, shifted)
            assert wrong.offset() == pytest.approx(seconds, abs=5)


def test_a_server_with_a_stepped_clock_keeps_its_timeouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steering = tmp_path / "clock"
    cluster = Cluster(tmp_path / "cluster")
    cluster.create()
    with monkeypatch.context() as during_start:
        for name, value in steered_env(steering).items():
            during_start.setenv(name, value)
        cluster.start()
    try:
        with psycopg.connect(cluster.url(), autocommit=True) as connection:
            shift_clock(steering, 120)
            row = connection.execute("select extract(epoch from clock_timestamp())::float").fetchone()
            assert row is not None
            assert row[0] - time.time() == pytest.approx(120, abs=5)
            connection.execute("set statement_timeout = '100ms'")
            started = time.monotonic()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute("select pg_sleep(10)")
            assert time.monotonic() - started < 5
    finally:
        cluster.stop("immediate")


def shared_memory(pid: int) -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir() if path.name.endswith(f"_{pid}")}


def test_only_shared_memory_of_killed_programs_is_removed() -> None:
    with child(faketime_env()) as living, child(faketime_env()) as killed:
        for each in (living, killed):
            each.does("nothing")
        killed.process.kill()
        killed.process.wait()
        assert shared_memory(killed.process.pid) != set()

        in_use = shared_memory(living.process.pid)
        remove_leftovers()
        assert shared_memory(killed.process.pid) == set()
        assert shared_memory(living.process.pid) == in_use != set()


def test_our_own_environment_is_left_as_it_is() -> None:
    faketime_env("+1h")
    assert "FAKETIME" not in os.environ
