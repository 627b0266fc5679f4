from __future__ import annotations

from functools import partial

import psycopg
import pytest

from bench import history
from bench.history import DAYS, Side
from bench.jobs import run


@pytest.mark.slow
def test_a_made_up_history_lies_in_its_days_and_a_worker_continues_after_it(database_url: str) -> None:
    side = Side("full", database_url)
    run(partial(history.enqueue, side, 1))
    run(partial(history.work_off, side, 1))

    history.fill(side, 1000)

    with psycopg.connect(database_url) as connection:
        days = connection.execute(
            "select tableoid::regclass::text, count(*), count(distinct id), max(finished_at) <= now() from trueup.history"
            " group by 1 order by 1"
        ).fetchall()
        assert [(count, different) for _, count, different, _ in days] == [(200, 200)] * (DAYS - 1) + [(201, 201)]
        assert all(past for *_, past in days)
        assert not any("rest" in name for name, *_ in days)

    run(partial(history.enqueue, side, 100))
    assert run(partial(history.work_off, side, 100)) > 0

    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*), count(distinct id) from trueup.history").fetchone() == (1101, 1101)
