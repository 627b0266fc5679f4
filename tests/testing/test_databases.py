"""Test databases have URLs that other drivers read, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from trueup.errors import ConfigError
from trueup.testing.databases import databases, on_server


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


def test_a_server_that_cannot_be_used_is_named_with_the_setting_that_names_it(tmp_path: Path) -> None:
    with (
        pytest.raises(
            ConfigError, match=r"(?s)cannot connect to postgresql://ada:\*\*\*@127.0.0.1:1/x.*TRUEUP_TEST_DATABASE_URL"
        ),
        databases("postgresql://ada:geheim@127.0.0.1:1/x", tmp_path),
    ):
        pass
