from __future__ import annotations

import psycopg
import pytest

from tests.support.database import TestServer


def test_a_database_still_in_use_is_dropped_and_its_sessions_ended(server: TestServer) -> None:
    with server.database() as url:
        session = psycopg.connect(url, autocommit=True)
        ((name,),) = session.execute("select current_database()").fetchall()
    with pytest.raises(psycopg.OperationalError):
        session.execute("select 1")
    with psycopg.connect(server.cluster.url()) as connection:
        assert not connection.execute("select from pg_database where datname = %s", [name]).rowcount
