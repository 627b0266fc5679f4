from __future__ import annotations

import json
from typing import Any

import orjson
import psycopg
import pytest

from trueup.durations import Duration
from trueup.jobs.handle import Handle


class Answer:
    async def wait_for_result(self, job_id: int, timeout: Duration | None) -> Any:
        return job_id, timeout


def handle(job_id: int = 2**40) -> Handle[Any]:
    return Handle(job_id, Answer())


def test_a_handle_is_the_jobs_id() -> None:
    assert handle() == 2**40
    assert handle().id == 2**40
    assert type(handle().id) is int
    assert {handle(): 1}[2**40] == 1
    assert f"{handle()} {handle():,}" == f"{2**40} {2**40:,}"
    assert repr(handle(7)) == "<Handle job 7>"


def test_a_handle_is_json() -> None:
    assert json.dumps({"job": handle()}) == f'{{"job": {2**40}}}'
    assert orjson.dumps([handle()]) == f"[{2**40}]".encode()


@pytest.mark.parametrize("job_id", [7, 2**40])
def test_a_handle_is_a_parameter_for_postgresql(database_url: str, job_id: int) -> None:
    with psycopg.connect(database_url) as connection:
        query = "select %s::bigint + 1, %s::bigint[], %s::text"
        row = connection.execute(query, [handle(job_id), [handle(job_id)], handle(job_id)]).fetchone()
        assert row == (job_id + 1, [job_id], str(job_id))


@pytest.mark.asyncio
async def test_waiting_for_a_handle_asks_for_its_job() -> None:
    assert await handle(7).result(timeout="10s") == (7, "10s")
