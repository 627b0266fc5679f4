"""Test databases have URLs that other drivers read, too."""

from __future__ import annotations

import pytest

from trueup.testing.databases import on_server


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("postgresql://ada:x@db:5433/shop?sslmode=require", "postgresql://ada:x@db:5433/t?sslmode=require"),
        ("postgresql://ada@/shop?host=/run/pg&port=5433", "postgresql://ada@/t?host=/run/pg&port=5433"),
        ("postgresql://db?dbname=shop&sslmode=require", "postgresql://db/t?sslmode=require"),
        ("postgresql://one:1,two:2/shop", "postgresql://one:1,two:2/t"),
        ("postgresql:///shop", "postgresql:///t"),
        ("postgresql://", "postgresql:///t"),
        ("host=db dbname=shop", "dbname=t host=db"),
    ],
)
def test_another_database_on_the_same_server(server: str, expected: str) -> None:
    assert on_server(server, "t") == expected
