"""What people do needs one connection at a time: none of it waits for a connection while it has one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from trueup import App, DatabaseUnavailable, Row, To, TrueupError

pytestmark = pytest.mark.asyncio

GROUPS = ("actions", "alerts", "jobs", "reconcilers", "schedules")
NOW = datetime.now(UTC)


def shop(url: str) -> App:
    app = App(url, pool_size=1, pool_timeout="1s")

    @app.job
    async def pack(order: int) -> None: ...

    @app.every("1h")
    async def count() -> None: ...

    papers = app.table("papers", key="id", state="state", changed_at="changed_at")

    @papers.reconcile("new", stale_for="1h", every="1h", name="sort")
    async def sort(paper: Row) -> To:
        return To("done")

    return app


def given() -> dict[str, list[Any]]:
    """Values for the parameters that have no default, of things that are there and of things that are not."""
    return {
        "name": ["count", "sort", "nothing"],
        "reconciler": ["sort", "nothing"],
        "key": ["1", "none"],
        "keys": [["1"], ["none"]],
        "ids": [[1], [999]],
        "job_id": [1, 999],
        "start": [NOW - timedelta(hours=3)],
        "end": [NOW - timedelta(hours=1)],
        "year": [2031],
    }


def calls(app: App) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for group in GROUPS:
        operations = getattr(app, group)
        for name, method in inspect.getmembers(operations, inspect.iscoroutinefunction):
            required = [
                each.name
                for each in inspect.signature(method).parameters.values()
                if each.default is inspect.Parameter.empty
            ]
            if name.startswith("_") or not set(required) <= given().keys():
                continue
            for values in product(*(given()[each] for each in required)):
                yield f"{group}.{name}{values}", method, dict(zip(required, values, strict=True))


async def test_no_operation_waits_for_a_second_connection_of_a_pool_that_has_one(database_url: str) -> None:
    async with shop(database_url) as app:
        done, waited = 0, []
        for said, method, arguments in calls(app):
            try:
                await method(**arguments)
            except DatabaseUnavailable:
                waited.append(said)
            except TrueupError:
                pass
            done += 1
        assert done > 60
        assert waited == []
