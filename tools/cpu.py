"""What the tests cost: `pytest -p tools.cpu …` ends with the CPU seconds of each file and each function, dearest first.

`--cpu-csv FILE` writes a line for each test: CPU seconds, those of pytest itself, processes started, wall seconds, its id.

Wall time says little on a machine that does other things, or about tests that wait. This counts the processor time of the
worker of pytest and of every process below it, ended ones included: the database server's backends, workers, applications. It
sees Linux only, and misses what left the worker's tree of processes (daemons whose starter has ended).
"""

from __future__ import annotations

import csv
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
SHOWN = 40  # files, and as many functions

started = 0
costs: dict[str, tuple[float, float, int, float]] = {}  # of each test: CPU, that of this process, starts, wall


def _count_starts() -> None:
    begin = subprocess.Popen.__init__

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        global started
        started += 1
        begin(self, *arguments, **options)

    subprocess.Popen.__init__ = counted  # type: ignore[method-assign]


def _statistics() -> Iterator[tuple[int, int, int]]:
    """(process, its parent, clock ticks of it and of its children that have ended) of every process.

    It is asked for twice a test, and what it costs counts as the test's: half of what the same takes with `Path`.
    """
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                file = os.open(f"/proc/{name}/stat", os.O_RDONLY)
                try:
                    fields = os.read(file, 4096).rpartition(b")")[2].split()
                finally:
                    os.close(file)
            except OSError:  # it has just ended
                continue
            yield int(name), int(fields[1]), sum(map(int, fields[11:15]))


def _seconds() -> float:
    """Of this process and all below it, so far."""
    below, ticks = defaultdict(list), {}
    for process, parent, spent in _statistics():
        below[parent].append(process)
        ticks[process] = spent
    tree = [os.getpid()]
    for process in tree:
        tree.extend(below[process])
    return sum(ticks.get(process, 0) for process in tree) / TICKS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    before, own, starts, begun = _seconds(), sum(os.times()[:2]), started, time.monotonic()
    try:
        return (yield)
    finally:
        wall = time.monotonic() - begun
        costs[item.nodeid] = (_seconds() - before, sum(os.times()[:2]) - own, started - starts, wall)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-csv", type=Path, help="write the cost of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    _count_starts()
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_Controller())


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu"] = dict(costs)


class _Controller:
    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        costs.update(getattr(node, "workeroutput", {}).get("cpu", {}))


def _sums(part: Callable[[str], str]) -> list[tuple[str, list[float]]]:
    """What the tests cost by a part of their ids, dearest first; the last number counts them."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 5)
    for test, spent in costs.items():
        name = part(test)
        sums[name] = [a + b for a, b in zip(sums[name], (*spent, 1), strict=True)]
    return sorted(sums.items(), key=lambda each: -each[1][0])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    total = sum(spent for spent, *_ in costs.values())
    terminalreporter.section(f"{total:.0f} seconds of CPU time")
    for part in (lambda test: test.partition("::")[0], lambda test: test.partition("[")[0]):
        for name, (spent, own, starts, wall, tests) in _sums(part)[:SHOWN]:
            terminalreporter.write_line(
                f"{spent:7.1f} s ({own:6.1f} in pytest), {wall:6.1f} s of wall time, "
                f"{starts:4.0f} processes, {tests:4.0f} tests  {name}"
            )
        terminalreporter.write_line("")
    if path := config.getoption("--cpu-csv"):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows((*map(_rounded, spent), test) for test, spent in sorted(costs.items()))


def _rounded(number: float) -> float:
    return round(number, 3)
