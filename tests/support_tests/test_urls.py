from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.urls import connection_url


@pytest.mark.parametrize(
    "parameters",
    [
        {"host": "127.0.0.1", "port": "6432", "user": "postgres", "dbname": "app"},
        {"host": "db", "port": "5432", "user": "a:b@c/d", "password": "p w%&?#", "dbname": "odd/name?"},
        {"host": "/run/a directory", "port": "5433", "user": "postgres", "dbname": "app"},
        {"host": "127.0.0.1", "port": "5432", "dbname": "app", "options": "-c search_path=a,b", "sslmode": "disable"},
        {"host": "one,two", "port": "1,2", "dbname": "app"},
        {"host": "/one,/two", "dbname": "app"},
        {"dbname": "app"},
    ],
)
def test_libpq_reads_back_what_was_put_into_the_url(parameters: dict[str, str]) -> None:
    assert conninfo_to_dict(connection_url(parameters)) == parameters


def test_a_parameter_that_is_none_is_left_to_libpq() -> None:
    assert connection_url({"host": "127.0.0.1", "port": 1, "password": None}) == "postgresql://127.0.0.1:1/"
