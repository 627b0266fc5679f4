"""What the tests cost: `pytest -p tools.cpu …` ends with the CPU seconds of each file, dearest first.

Wall time says little on a machine that does other things, or about tests that wait. This counts the processor time of the
worker of pytest and of every process below it, ended ones included: the database server's backends, workers, applications. It
sees Linux only, and misses what left the worker's tree of processes (daemons whose starter has ended).
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
SHOWN = 40  # files

started = 0
costs: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])  # all, of this process, starts, tests


def _count_starts() -> None:
    begin = subprocess.Popen.__init__

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        global started
        started += 1
        begin(self, *arguments, **options)

    subprocess.Popen.__init__ = counted  # type: ignore[method-assign]


def _statistics() -> Iterator[tuple[int, int, int]]:
    """(process, its parent, clock ticks of it and of its children that have ended) of every process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            yield int(entry.name), int(fields[1]), sum(map(int, fields[11:15]))


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
    before, own, starts = _seconds(), sum(os.times()[:2]), started
    try:
        return (yield)
    finally:
        spent = (_seconds() - before, sum(os.times()[:2]) - own, started - starts, 1)
        file = item.nodeid.partition("::")[0]
        costs[file] = [a + b for a, b in zip(costs[file], spent, strict=True)]


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
        for file, spent in getattr(node, "workeroutput", {}).get("cpu", {}).items():
            costs[file] = [a + b for a, b in zip(costs[file], spent, strict=True)]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    total = sum(spent for spent, *_ in costs.values())
    terminalreporter.section(f"{total:.0f} seconds of CPU time")
    for file, (spent, own, starts, tests) in sorted(costs.items(), key=lambda each: -each[1][0])[:SHOWN]:
        terminalreporter.write_line(
            f"{spent:7.1f} s ({own:6.1f} in pytest), {starts:4.0f} processes, {tests:4.0f} tests  {file}"
        )
