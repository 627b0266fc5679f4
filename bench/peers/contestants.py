"""Who is measured: the exact release, the settings, and what its queue is called in the database.

Each peer has the settings that its documentation recommends for throughput, or that measured best where it recommends none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers import install

HERE = Path(__file__).parent
TRUEUP = "trueup"
PGQUEUER = "PgQueuer"
GRAPHILE = "graphile-worker"
GRAPHILE_PLAIN = "graphile-worker, no local queue"
PROCRASTINATE = "Procrastinate"

PGQUEUER_RELEASE = "1.6.0"
GRAPHILE_RELEASE = "0.18.0"
PROCRASTINATE_RELEASE = "3.10.0"
LOOP = "uvloop==0.23.0"


@dataclass(frozen=True)
class Contestant:
    name: str
    release: str
    program: Callable[[], Sequence[str | Path]]  # installs it if need be
    queue: str  # what is left to do, as a FROM item; its first word is the table
    settings: dict[str, Any] = field(default_factory=dict)
    said: str = ""  # the settings, for people
    share: float = 1.0  # of the jobs: the slow ones are given fewer, or a round would take a quarter of an hour

    @property
    def table(self) -> str:
        return self.queue.partition(" ")[0]

    def command(self, url: str, work: str, count: int) -> list[str | Path]:
        return [*self.program(), url, json.dumps(self.settings), work, str(count)]


def _trueup() -> Sequence[str | Path]:
    return sys.executable, "-m", "bench.peers.with_trueup"


def _pgqueuer() -> Sequence[str | Path]:
    pins = (f"pgqueuer[asyncpg]=={PGQUEUER_RELEASE}", "asyncpg==0.32.0", LOOP)
    return install.python("pgqueuer", *pins), "-m", "bench.peers.with_pgqueuer"


def _procrastinate() -> Sequence[str | Path]:
    pins = (f"procrastinate=={PROCRASTINATE_RELEASE}", "psycopg[binary]==3.3.8", "psycopg-pool==3.3.3", LOOP)
    return install.python("procrastinate", *pins), "-m", "bench.peers.with_procrastinate"


def _graphile() -> Sequence[str | Path]:
    node, modules = install.node("graphile-worker", f"graphile-worker@{GRAPHILE_RELEASE}", "pg@8.23.1")
    return node, HERE / "with_graphile.mjs", modules


OURS = (Contestant(TRUEUP, version("trueup"), _trueup, "trueup.jobs", said="defaults, uvloop"),)


def is_ours(name: str) -> bool:
    return name.startswith(TRUEUP)


def on_asyncio() -> Contestant:
    """trueup on the event loop that comes with Python."""
    return replace(OURS[0], name=f"{TRUEUP}, asyncio", settings={"loop": "asyncio"}, said="defaults, without uvloop")


def on_python(interpreter: str) -> Contestant:
    """trueup on another Python, which it is installed for."""

    def program() -> Sequence[str | Path]:
        pins = ("--editable", str(HERE.parents[1]), LOOP)
        return (
            install.python(f"trueup-{Path(interpreter).name}", *pins, base=interpreter),
            "-m",
            "bench.peers.with_trueup",
        )

    return replace(OURS[0], name=f"{TRUEUP}, {Path(interpreter).name}", program=program)


PEERS = (
    Contestant(
        PGQUEUER,
        PGQUEUER_RELEASE,
        _pgqueuer,
        "pgqueuer",
        {"batch_size": 500, "enqueue_batch": 1000, "pool": 10},
        "asyncpg, uvloop, batch_size=500; enqueued 1,000 at a time; a pool of 10 for many callers",
    ),
    Contestant(
        GRAPHILE,
        GRAPHILE_RELEASE,
        _graphile,
        "graphile_worker._private_jobs",
        {
            "concurrentJobs": 24,
            "maxPoolSize": 25,
            "localQueue": {"size": 500},
            "completeJobBatchDelay": 0,
            "failJobBatchDelay": 0,
            "enqueueBatch": 1000,
        },
        "as its page on performance says: concurrentJobs 24, maxPoolSize 25, localQueue size 500, completeJobBatchDelay 0, "
        "failJobBatchDelay 0; no logger; enqueued 1,000 at a time",
    ),
    Contestant(
        GRAPHILE_PLAIN,
        GRAPHILE_RELEASE,
        _graphile,
        "graphile_worker._private_jobs",
        {"concurrentJobs": 24, "maxPoolSize": 25, "enqueueBatch": 1000},
        "defaults, but concurrentJobs 24 (default 1), maxPoolSize 25; no logger",
        share=0.1,
    ),
    Contestant(
        PROCRASTINATE,
        PROCRASTINATE_RELEASE,
        _procrastinate,
        "procrastinate_jobs where status in ('todo', 'doing')",
        {"concurrency": 30, "pool": 10, "enqueue_batch": 1000},
        "psycopg[binary], uvloop, concurrency=30, pool of 10; enqueued 1,000 at a time",
        share=0.02,
    ),
)
