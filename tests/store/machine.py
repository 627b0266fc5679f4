"""State machines (Hypothesis) over a real database whose time is an argument: random steps, each compared with a model in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.support.matrix import count
from trueup import App
from trueup.store.store import Store
from trueup.testing.clock import ManualClock

T = TypeVar("T")

WHICH = st.integers(0, 3)


def recent(made: Sequence[T], which: int) -> T:
    """One of the last few: with all that were ever made, few steps would be about the same one."""
    return made[-1 - which % len(made)]


class Bench:
    """One database for all examples of a test; `clear` empties it, and its clock never goes back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()
        self.loop.set_debug(False)  # it would take most of the time
        self.app = App(url, clock=self.clock)
        self.store: Store = self.run(self.app.open())
        self.connection = psycopg.connect(url, autocommit=True)
        self.other = psycopg.connect(url, autocommit=True)  # a user's, for transactions

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement.encode(), params).fetchall()

    def clear(self, *tables: str) -> None:
        for table in tables:
            self.connection.execute(f"delete from {table}".encode())

    def close(self) -> None:
        self.connection.close()
        self.other.close()
        self.run(self.app.close())
        self.loop.close()


@contextmanager
def bench_on(url: str) -> Iterator[Bench]:
    bench = Bench(url)
    try:
        yield bench
    finally:
        bench.close()


def try_out(machine: Callable[[], RuleBasedStateMachine], *, few: int, proof: int, steps: int = 40) -> None:
    """Run `few` fixed examples of up to `steps` steps; with `--proof`, `proof` random ones. A failing example is printed as a program."""
    examples = count(few, proof=proof)
    options = settings(
        max_examples=examples,
        derandomize=examples == few,
        # To find the shortest program takes minutes: only where there is time.
        phases=[Phase.generate] if examples == few else [Phase.generate, Phase.shrink],
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=options)
