"""The HTTP API: what is asked for, and by whom at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio

from apps.addresses.api import make_api
from tests.apps.addresses.desk import Desk
from tests.support.watching import until

pytestmark = pytest.mark.asyncio

ADA = "0x" + "ab" * 20
RECONCILE = f"/v2/addresses/{ADA}/chains/ethereum/reconcile"
JOBS = "/v2/reconciliation-jobs"


@pytest_asyncio.fixture
async def desk(open_desk: Callable[..., Awaitable[Desk]]) -> Desk:
    desk = await open_desk()
    await desk.monitor(ADA)
    return desk


@pytest_asyncio.fixture
async def client(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_api(desk.service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://addresses") as client:
        yield client


async def test_a_job_is_asked_for_and_can_be_read(client: httpx.AsyncClient) -> None:
    answer = await client.post(RECONCILE, json={"mode": "full"})
    assert answer.status_code == 202
    made = answer.json()
    assert (made["address"], made["chain"], made["mode"], made["status"]) == (ADA, "ethereum", "full", "pending")
    assert (await client.get(f"{JOBS}/{made['id']}")).json() == made
    assert "version" not in made


async def test_partial_is_what_is_meant_unless_it_is_said(client: httpx.AsyncClient) -> None:
    for body in ({}, {"json": {}}, {"json": {"mode": "partial"}}):
        answer = await client.post(RECONCILE, **body)
        assert (answer.status_code, answer.json()["mode"]) == (202, "partial")


async def test_an_address_in_capitals_is_the_same(client: httpx.AsyncClient) -> None:
    answer = await client.post(RECONCILE.replace(ADA, "0x" + "AB" * 20))
    assert (answer.status_code, answer.json()["address"]) == (202, ADA)


async def test_typing_errors_in_an_address_or_a_chain_are_refused(client: httpx.AsyncClient) -> None:
    mistyped = await client.post(RECONCILE.replace(ADA, "0x" + "aB" * 20))
    assert (mistyped.status_code, "mistyped" in mistyped.json()["detail"]) == (400, True)
    elsewhere = await client.post(RECONCILE.replace("ethereum", "etherium"))
    assert (elsewhere.status_code, elsewhere.json()["detail"].rpartition("; ")[2]) == (400, "did you mean ethereum?")


async def test_a_waiting_job_is_replaced(client: httpx.AsyncClient, desk: Desk) -> None:
    first = (await client.post(RECONCILE)).json()
    second = (await client.post(RECONCILE, json={"mode": "full"})).json()
    assert second["id"] != first["id"]
    old = (await client.get(f"{JOBS}/{first['id']}")).json()
    assert (old["status"], old["error"], old["replaced_by"]) == ("failed", "replaced", second["id"])
    assert old["completed_at"] is not None
    active = [job for job in await desk.jobs() if job["status"] == "pending"]
    assert [job["id"] for job in active] == [second["id"]]


async def test_a_running_job_is_a_conflict(client: httpx.AsyncClient, desk: Desk) -> None:
    first = (await client.post(RECONCILE)).json()
    await desk.do("update reconciliation_jobs set status = 'running'")
    answer = await client.post(RECONCILE)
    assert (answer.status_code, answer.json()["detail"]) == (409, f"job {first['id']} is running")
    await desk.do("update reconciliation_jobs set status = 'completed'")
    assert (await client.post(RECONCILE)).status_code == 202


async def test_two_clicks_at_once_leave_one_active_job(client: httpx.AsyncClient, desk: Desk) -> None:
    answers = await asyncio.gather(*(client.post(RECONCILE) for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    assert 202 in {answer.status_code for answer in answers}
    assert [job["status"] for job in await desk.jobs()].count("pending") == 1


async def test_a_job_that_is_claimed_in_that_moment_is_a_conflict(
    client: httpx.AsyncClient, desk: Desk, database_url: str
) -> None:
    first = (await client.post(RECONCILE)).json()
    with psycopg.connect(database_url) as claim, psycopg.connect(database_url, autocommit=True) as watcher:
        claim.execute("update reconciliation_jobs set status = 'running', version = version + 1")
        asked = asyncio.create_task(client.post(RECONCILE))
        waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        await until(lambda: watcher.execute(waiting).fetchone() is not None)
        claim.commit()
    assert (await asked).status_code == 409
    assert [job["id"] for job in await desk.jobs()] == [first["id"]]


async def test_a_job_that_a_tick_makes_in_that_moment_is_replaced(
    client: httpx.AsyncClient, desk: Desk, database_url: str
) -> None:
    with psycopg.connect(database_url) as tick, psycopg.connect(database_url, autocommit=True) as watcher:
        tick.execute(
            "insert into reconciliation_jobs (address, chain, mode, tick) values (%s, 'ethereum', 'partial', now())",
            [ADA],
        )
        asked = asyncio.create_task(client.post(RECONCILE, json={"mode": "full"}))
        waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        await until(lambda: watcher.execute(waiting).fetchone() is not None)
        tick.commit()
    answer = await asked
    assert (answer.status_code, answer.json()["mode"]) == (202, "full")
    assert [job["status"] for job in await desk.jobs()] == ["failed", "pending"]


async def test_a_replaced_job_is_not_worked_on(client: httpx.AsyncClient, desk: Desk) -> None:
    """Also when it has failed before, and waits to be tried again."""
    first = (await client.post(RECONCILE)).json()
    await desk.sweep()  # no provider: it fails at once
    assert (await desk.show(first["id"]))["status"] == "failed"
    second = (await client.post(RECONCILE)).json()
    third = (await client.post(RECONCILE)).json()
    assert (await desk.sweep()).claimed == 1
    assert (await desk.show(second["id"]))["error"] == "replaced"
    assert "no provider" in (await desk.show(third["id"]))["error"]


async def test_what_cannot_be_reconciled_is_told_so(client: httpx.AsyncClient) -> None:
    for path, status in [
        (f"/v2/addresses/0x{'cd' * 20}/chains/ethereum/reconcile", 404),
        (f"/v2/addresses/{ADA}/chains/polygon/reconcile", 404),
        (f"/v2/addresses/{ADA}/chains/nobody-knows/reconcile", 400),
        ("/v2/addresses/nonsense/chains/ethereum/reconcile", 400),
        (f"/v2/addresses/{ADA}%00/chains/ethereum/reconcile", 400),
        (f"/v2/addresses/{ADA}%0a/chains/ethereum/reconcile", 400),
        (f"/v2/addresses/{ADA}'/chains/ethereum/reconcile", 400),
        (f"/v2/addresses/{'a' * 5000}/chains/ethereum/reconcile", 400),
        (f"/v2/addresses/{ADA}/chains/%E2%80%AE/reconcile", 400),
        (f"/v2/addresses/{ADA}/chains/ETHEREUM/reconcile", 400),
        (f"/v2/addresses/{ADA}/chains/ether%00eum/reconcile", 400),
    ]:
        assert (await client.post(path)).status_code == status, path


async def test_what_is_no_wish_is_told_so(client: httpx.AsyncClient) -> None:
    for body in [b'{"mode": "half"}', b'{"mode": null}', b'{"more": 1}', b"[]", b"7", b"{", b"\xff", b'{"mode": NaN}']:
        answer = await client.post(RECONCILE, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, body


async def test_an_address_that_is_not_monitored_any_more_is_not_found(client: httpx.AsyncClient, desk: Desk) -> None:
    await desk.do("update addresses set is_monitored = false")
    assert (await client.post(RECONCILE)).status_code == 404


async def test_jobs_are_listed_newest_first_page_by_page(client: httpx.AsyncClient, desk: Desk) -> None:
    await desk.do(
        "insert into reconciliation_jobs (address, chain, mode, status)"
        " select '0x' || n, 'ethereum', 'partial', 'completed' from generate_series(1, 5) as n"
    )
    seen: list[str] = []
    page: dict[str, Any] = {"next": 2**63 - 1}
    while page["next"] is not None:
        page = (await client.get(JOBS, params={"most": 2, "before": page["next"]})).json()
        seen += [job["address"] for job in page["jobs"]]
    assert seen == ["0x5", "0x4", "0x3", "0x2", "0x1"]


async def test_lists_can_be_narrowed(client: httpx.AsyncClient, desk: Desk) -> None:
    await desk.job("0xaa")
    await desk.job("0xbb", "full")
    await desk.job("0xcc", chain="polygon")
    await desk.do("update reconciliation_jobs set status = 'completed' where id = 2")
    cases: list[tuple[dict[str, str], list[int]]] = [
        ({}, [3, 2, 1]),
        ({"status": "pending"}, [3, 1]),
        ({"mode": "full"}, [2]),
        ({"chain": "polygon"}, [3]),
        ({"address": "0xAA"}, [1]),
        ({"status": "pending", "mode": "full"}, []),
    ]
    for asked, expected in cases:
        found = (await client.get(JOBS, params=asked)).json()
        assert [job["id"] for job in found["jobs"]] == expected, asked


async def test_filters_that_mean_nothing_are_refused(client: httpx.AsyncClient) -> None:
    for query in [
        "status=lost",
        "mode=half",
        "chain=%00",
        "address=%00",
        "address=",
        "before=0",
        "before=-1",
        "before=1e18",
        "before=9223372036854775808",
        "before='",
        "most=0",
        "most=1001",
        "most=x",
    ]:
        assert (await client.get(f"{JOBS}?{query}")).status_code == 400, query


async def test_jobs_that_are_none_are_not_found(client: httpx.AsyncClient) -> None:
    for job, status in [("7", 404), ("0", 400), ("-1", 400), ("abc", 400), ("9223372036854775808", 400), ("1'", 400)]:
        assert (await client.get(f"{JOBS}/{job}")).status_code == status, job
        assert (await client.get(f"{JOBS}/{job}/audit")).status_code == status, job


async def test_the_audit_of_a_job_is_read_page_by_page(client: httpx.AsyncClient, desk: Desk) -> None:
    job = await desk.job(ADA)
    await desk.do(
        "insert into reconciliation_audit_log (job, transaction, action, before)"
        " select %s, '0x' || n, 'soft_deleted', '{\"value\": \"1\"}' from generate_series(1, 3) as n",
        [job],
    )
    first = (await client.get(f"{JOBS}/{job}/audit", params={"most": 2})).json()
    rest = (await client.get(f"{JOBS}/{job}/audit", params={"after": first[-1]["id"]})).json()
    assert [line["transaction"] for line in first + rest] == ["0x1", "0x2", "0x3"]
    assert first[0]["before"] == {"value": "1"}


async def test_the_page_that_describes_it_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    assert "/v2/reconciliation-jobs" in page
    assert "<script" not in page
    assert "https://" not in page
