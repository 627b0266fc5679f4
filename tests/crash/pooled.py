"""Producers behind PgBouncer in transaction mode, and the proof of what they were told."""

from __future__ import annotations

import threading
from collections import Counter

import psycopg

from tests.crash import fleet, mixed_checks
from tests.support.invariants import Violations
from trueup import App, DatabaseUnavailable

FIRST = 1_000_000  # no other producer uses numbers from here on
PAUSE = 0.5  # seconds between two writes
POOL_SIZE = 60  # transactions at a time: two for each worker, and those that leases and handlers hold open
TABLE = "create table effects.orders (n bigint primary key)"
ROWS = "select n from effects.orders"
JOBS = """
select (args ->> 'n')::bigint, count(*) from (select kind, args from trueup.jobs union all select kind, args from trueup.history) as every
 where kind = 'transfer' and (args ->> 'n')::bigint >= %s group by 1
"""


class Producers(threading.Thread):
    """A row of their own and its job in one transaction, or a job alone, by turns. Even numbers have a row."""

    def __init__(self, pooled_url: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self._url = pooled_url
        self._stopping = threading.Event()

    def run(self) -> None:
        app = App(self._url)
        jobs = fleet.declare(app)
        n = FIRST
        while not self._stopping.wait(PAUSE):
            n += 1
            try:
                if n % 2:
                    jobs.transfer.enqueue_sync(n)
                else:
                    self._outbox(jobs, n)
            except (psycopg.Error, DatabaseUnavailable):
                continue  # it may be there or not
            self.acknowledged.append(n)
        app.close_sync()

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)

    def _outbox(self, jobs: fleet.Jobs, n: int) -> None:
        # Statements that psycopg prepares by itself would be in another session the next time.
        with psycopg.connect(self._url, prepare_threshold=None) as connection:
            connection.execute("insert into effects.orders (n) values (%s)", [n])
            jobs.transfer.using(tx=connection).enqueue_sync(n)


def of_producers(url: str, acknowledged: list[int]) -> tuple[int, Violations]:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = {row[0] for row in connection.execute(ROWS)}
        jobs = Counter(dict(connection.execute(JOBS, [FIRST]).fetchall()))
    return len(acknowledged), mixed_checks.rows_have_their_jobs(acknowledged, rows, jobs)
