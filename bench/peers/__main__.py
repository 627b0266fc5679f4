"""trueup beside other job queues on PostgreSQL, in one run on one server: drain, enqueue, pick-up, idle.

    python -m bench.peers [--jobs 100000] [--rounds 3] [--only NAME] [--idle-for 60] [--json]
    python -m bench.peers --alone --asyncio --python python3.13

Each peer is an exact release at its best settings, which are printed; it is fetched on the first run. Jobs that do nothing, one
worker process. With `--asyncio` and `--python`, trueup without uvloop and on other releases of Python run beside them. Only the ratios carry over to other machines, and only from a machine that does nothing else meanwhile.
"""

from __future__ import annotations

import platform
import statistics
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Column, Table

from bench.peers.contestants import OURS, PEERS, Contestant, on_asyncio, on_python
from bench.peers.goals import rates, verdicts
from bench.peers.install import CannotInstall
from bench.peers.measure import Figures, measure
from bench.peers.process import WentWrong
from bench.report import parser, progress, report
from bench.server import server


def summed_up(contestants: Sequence[Contestant], figures: Mapping[str, Figures]) -> dict[str, Any]:
    return {
        "contestants": [described(who, figures[who.name]) for who in contestants],
        "goals": [
            {"who": one.who, "goal": one.goal, "reached": round(one.reached, 2), "met": one.met}
            for one in verdicts(figures)
        ],
    }


def described(who: Contestant, figures: Figures) -> dict[str, Any]:
    work = {
        name: {"per_s": round(statistics.median(taken)), "rounds": [round(one) for one in taken]}
        for name, taken in rates(figures).items()
    }
    costs = figures.costs()
    return {
        "name": who.name,
        "release": who.release,
        "settings": who.said,
        "jobs": figures.jobs,
        **work,
        "per job": {
            "client_us": round(costs.client, 1),
            "server_us": round(costs.server, 1),
            "wal_bytes": round(costs.wal),
            "wal_records": {about: round(size) for about, size in costs.records.items()},
        },
        "pick-up": _latency(figures.latency),
        "urgent": _latency(figures.urgent_latency),
        "idle_statements_per_s": round(figures.idle, 2),
    }


def _latency(at: Callable[[float], float]) -> dict[str, float]:
    return {"p50_ms": round(at(0.5), 2), "p99_ms": round(at(0.99), 2)}


def show(result: dict[str, Any], console: Console) -> None:
    rates = ("drain", "bulk enqueue", "one-by-one enqueue", "enqueue by 100 callers")
    speed = Table(Column("jobs per second", min_width=16), "drain", "in bulk", "one by one", "100 callers")
    rest = Table(Column("", min_width=16), "CPU, client + server", "WAL", "pick-up", "urgent", "idle /s")
    for one in result["contestants"]:
        speed.add_row(one["name"], *(_rate(one[work]) for work in rates))
        job, idle = one["per job"], f"{one['idle_statements_per_s']:.2f}"
        cost = f"{job['client_us']:.0f} + {job['server_us']:.0f} µs", f"{job['wal_bytes']:,} B"
        times = [f"{one[what]['p50_ms']:.1f} / {one[what]['p99_ms']:.1f} ms" for what in ("pick-up", "urgent")]
        rest.add_row(one["name"], *cost, *times, idle)
    log = Table(Column("bytes of log per job", min_width=16), *result["contestants"][0]["per job"]["wal_records"])
    for one in result["contestants"]:
        log.add_row(one["name"], *map(str, one["per job"]["wal_records"].values()))
    for table in (speed, rest, log):
        console.print(table)
    goals = Table("goal", *dict.fromkeys(one["who"] for one in result["goals"]))
    for goal in dict.fromkeys(one["goal"] for one in result["goals"]):
        reached = [one for one in result["goals"] if one["goal"] == goal]
        goals.add_row(goal, *(f"{one['reached']:.2f}{'' if one['met'] else '  missed'}" for one in reached))
    console.print(goals)
    for one in result["contestants"]:
        about = f"{one['name']} {one['release']}, {one['jobs']:,} jobs: {one['settings']}"
        console.print(about, markup=False, highlight=False)
    console.print(
        f"{result['machine']}; medians of {result['rounds']} rounds, below them the slowest and the fastest; "
        "CPU and WAL of a job in the drain; pick-up: p50 / p99 from enqueue to the handler, urgent: the same with priority behind a "
        "backlog; idle: statements that one worker sends",
        highlight=False,
    )


def _rate(taken: dict[str, Any]) -> str:
    return f"{taken['per_s']:,}\n[dim]{min(taken['rounds']):,}–\n{max(taken['rounds']):,}[/dim]"


def chosen(options: ArgumentParser, names: Sequence[str] | None) -> list[Contestant]:
    """The peers whose names begin so, in whatever case; all unless some are named."""
    if names is None:
        return list(PEERS)
    wanted = tuple(name.lower() for name in names)
    peers = [peer for peer in PEERS if peer.name.lower().startswith(wanted)]
    if not peers:
        options.error(f"no peer is called so; there are {', '.join(repr(peer.name) for peer in PEERS)}")
    return peers


def main() -> None:
    options = parser(__doc__, jobs=100_000, rounds=3)
    options.add_argument("--only", action="append", metavar="NAME", help="trueup beside this peer alone")
    options.add_argument("--idle-for", type=float, default=60, metavar="SECONDS")
    options.add_argument("--alone", action="store_true", help="no peers")
    options.add_argument("--asyncio", action="store_true", help="trueup without uvloop, too")
    options.add_argument(
        "--python", action="append", default=[], metavar="PATH", help="trueup on this interpreter, too"
    )
    given = options.parse_args()
    ours = [*OURS, *([on_asyncio()] if given.asyncio else []), *map(on_python, given.python)]
    contestants = [*ours, *([] if given.alone else chosen(options, given.only))]
    try:
        with server() as cluster:
            figures = measure(
                cluster, contestants, jobs=given.jobs, rounds=given.rounds, idle_for=given.idle_for, say=progress
            )
            with psycopg.connect(cluster.url()) as connection:
                version = connection.info.parameter_status("server_version")
    except (CannotInstall, WentWrong) as error:
        sys.exit(str(error))
    machine = f"PostgreSQL {version}, Python {platform.python_version()}"
    report({"machine": machine, "rounds": given.rounds, **summed_up(contestants, figures)}, show, as_json=given.json)


if __name__ == "__main__":
    main()
