from __future__ import annotations

import psycopg
import pytest

from tests.support.database import Ahead, TestServer
from tests.support.waiting import wait_until


def test_a_database_still_in_use_is_dropped_and_its_sessions_ended(server: TestServer) -> None:
    with server.database() as url:
        session = psycopg.connect(url, autocommit=True)
        ((name,),) = session.execute("select current_database()").fetchall()
    with pytest.raises(psycopg.OperationalError):
        session.execute("select 1")
    with psycopg.connect(server.cluster.url(), autocommit=True) as connection:
        there = "select from pg_database where datname = %s"
        wait_until(lambda: not connection.execute(there, [name]).rowcount, f"{name} is dropped")


def test_a_database_is_not_the_one_of_the_test_before(server: TestServer) -> None:
    with server.database() as first, psycopg.connect(first, autocommit=True) as connection:
        connection.execute("create table left_behind ()")
    with server.database() as second, psycopg.connect(second, autocommit=True) as connection:
        assert connection.execute("select to_regclass('left_behind'), to_regclass('trueup.jobs')::text").fetchone() == (
            None,
            "trueup.jobs",
        )


def test_a_database_that_cannot_be_made_fails_the_test_that_needs_it(server: TestServer) -> None:
    ahead = Ahead(server.cluster.url(), "template no_such_database")
    with pytest.raises(psycopg.Error, match="no_such_database"):
        ahead.take()
    ahead.close()
