"""What a process has noted in the database before it was killed is still true for the next one: checkpoints, and open breakers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.crash.stepping import PAUSE_AFTER, TABLES
from tests.support.processes import Fleet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SOON = 60  # seconds; it takes a few


class Orders:
    def __init__(self, connection: psycopg.Connection[Any], fleet: Fleet) -> None:
        self._connection = connection
        self.fleet = fleet

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def add(self, shop: str, *ids: int) -> None:
        for number in ids:
            self._connection.execute("insert into orders (id, shop) values (%s, %s)", [number, shop])

    def done(self) -> list[int]:
        return [row[0] for row in self.sql("select id from orders where state = 'done' order by id")]


@pytest.fixture
def orders(database_url: str, tmp_path: Path) -> Iterator[Orders]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        with Fleet("tests.crash.stepping", database_url, tmp_path) as fleet:
            yield Orders(connection, fleet)


@pytest.mark.parametrize(
    ("fault", "second_steps"),
    [("after_row_checkpoint:kill", 1), ("after_row_handler:kill", 2), ("before_row_settle:kill", 2)],
)
def test_a_process_killed_after_a_checkpoint_keeps_it_and_repeats_no_earlier_step(
    orders: Orders, fault: str, second_steps: int
) -> None:
    orders.add("alive", 1)
    killed = orders.fleet.launch(fault=fault)
    assert killed.wait(SOON) == -signal.SIGKILL
    assert orders.sql("select state, steps from orders") == [("new", 1)], "the checkpoint is there, the outcome is not"
    orders.fleet.launch()
    wait_until(lambda: orders.done() == [1], "another process has gone on", timeout=SOON)
    steps = orders.sql("select step, count(*), count(distinct process) from effects group by 1 order by 1")
    assert steps[0] == (1, 1, 1), "what came before the checkpoint is not done again"
    assert steps[1][:2] == (2, second_steps), "what came after it is, unless it was not begun"
    assert orders.sql("select count(*) from trueup.rows") == [(0,)]


def test_a_breaker_of_one_key_outlives_the_process_that_opened_it(orders: Orders) -> None:
    orders.add("dead", *range(1, 11))
    first = orders.fleet.launch()
    wait_until(lambda: orders.sql("select key from trueup.reconciler_pauses"), "the breaker is open", timeout=SOON)
    first.send(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    tried = orders.sql("select count(*) from effects")[0][0]
    assert tried <= PAUSE_AFTER + 1, "it has opened early"
    orders.add("alive", *range(11, 16))
    orders.add("dead", 16)
    second = orders.fleet.launch()
    wait_until(lambda: orders.done() == list(range(11, 16)), "the other shop's orders are done", timeout=SOON)
    swept = "select name from trueup.reconcilers where last_swept_at > (select max(started_at) from trueup.workers)"
    wait_until(lambda: orders.sql(swept), "it has looked at all there is", timeout=SOON)
    assert orders.sql("select count(*) from effects where step = 0") == [(tried,)], (
        "nobody has asked the dead shop since"
    )
    assert second.status is None
