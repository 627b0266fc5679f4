"""Somebody else takes every connection that the server allows, while jobs, rows and ticks are in hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.crash.in_hand import LEASE, InHand, in_hand
from tests.support.database import TestServer
from tests.support.waiting import wait_until
from trueup.store.db.migrate import Migrator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ALLOWED = "100"  # enough for two workers with all that they open themselves
FOR_WATCHING = "20"  # more than one: whoever is refused has one of these for that moment
OF_WORKERS = "application_name like 'trueup%%' and usename = 'shop' and backend_type = 'client backend'"
# Workers that have renewed their lease, and the rows in their hands: these have connections of their own for that.
RENEWED = f"""
trueup.workers as w
 where w.renewed_at > w.started_at
   and not exists (select from trueup.rows as r where r.holder = w.holder and r.due_at <= r.claimed_at + interval '{LEASE}')
"""


class Greedy:
    """Takes every connection that is free, and each that becomes free, until it is told to stop."""

    def __init__(self, url: str) -> None:
        self.refused = 0
        self._url = url
        self._taken: list[psycopg.Connection] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._take)

    def _take(self) -> None:
        while not self._enough.is_set():
            try:
                self._taken.append(psycopg.connect(self._url))
            except psycopg.OperationalError:
                self.refused += 1
                self._enough.wait(0.01)

    def start(self) -> None:
        """Return when there is no connection left."""
        self._thread.start()
        wait_until(lambda: self.refused, "all connections are taken")

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()
        for connection in self._taken:
            connection.close()


@pytest.fixture
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A small server: for whoever watches, who is let in even then, and for the role of the workers, who is not."""
    settings = {"max_connections": ALLOWED, "superuser_reserved_connections": FOR_WATCHING}
    with TestServer(tmp_path_factory.mktemp("pg"), **settings) as server:
        with psycopg.connect(server.cluster.url(), autocommit=True) as connection:
            connection.execute("create role shop login")
            connection.execute("create database shop owner shop")
        watching = server.cluster.url("shop")
        theirs = watching.replace("postgres@", "shop@")
        with psycopg.connect(theirs, autocommit=True) as connection:
            Migrator(connection, "trueup").migrate()
        yield watching, theirs


@contextmanager
def all_taken(url: str) -> Iterator[Greedy]:
    greedy = Greedy(url)
    greedy.start()
    try:
        yield greedy
    finally:
        greedy.stop()


def end_sessions(run: InHand) -> int:
    """Of the workers; somebody else takes their place."""
    return run.count(f"pg_stat_activity where {OF_WORKERS} and pg_terminate_backend(pid)")


def both_lost_their_leases(run: InHand) -> bool:
    end_sessions(run)  # they may have been quicker
    return len({line["process"] for line in run.said("worker.lease_lost")}) == 2


def renewed_for_a_lease(run: InHand, since: object) -> bool:
    renewed = f"select bool_and(renewed_at > %s::timestamptz + interval '{LEASE}') from trueup.workers"
    return run.query(renewed, since) == [(True,)]


@pytest.mark.proof(beside="test_workers_without_connections_recover_when_there_are_some_again")
def test_renewals_go_on_without_a_connection_to_be_had_and_what_is_in_hand_is_kept(
    urls: tuple[str, str], tmp_path: Path
) -> None:
    watching, theirs = urls
    with in_hand(watching, tmp_path, workers_url=theirs) as run:
        wait_until(lambda: run.count(RENEWED) == 2, "each lease was renewed once, and so has its connection")
        terms = run.query("select id, term from trueup.jobs where kind = 'transfer' order by id")
        with all_taken(theirs) as greedy:
            taken_at = run.query("select now()")[0][0]
            wait_until(
                lambda: renewed_for_a_lease(run, taken_at), "leases were renewed for longer than they last", timeout=30
            )
            assert run.query("select id, term from trueup.jobs where kind = 'transfer' order by id") == terms
            assert run.said("worker.lease_lost") == []
            assert greedy.refused > 10
            run.gate.touch()
        run.more_work()
        run.wait_ended()
        run.wait_fired(2)
        run.prove()


def test_workers_without_connections_recover_when_there_are_some_again(urls: tuple[str, str], tmp_path: Path) -> None:
    watching, theirs = urls
    with in_hand(watching, tmp_path, workers_url=theirs) as run:
        with all_taken(theirs):
            assert end_sessions(run) >= 2 * 4
            wait_until(partial(both_lost_their_leases, run), "both workers have lost their leases", timeout=30)
            run.gate.touch()
        run.more_work()
        run.wait_ended()
        run.wait_fired(2)
        run.prove()
        assert run.said("database.restored")
