"""The API, with the application behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from apps.pulse.api import make_api
from apps.pulse.plan import HEALTH_CHECK, JOBS
from tests.apps.pulse.office import Office

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def client(office: Office) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_api(office.service))
    async with httpx.AsyncClient(transport=transport, base_url="http://pulse") as client:
        yield client


async def got(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_run_by_hand_goes_through_the_schedule_and_is_seen(office: Office, client: httpx.AsyncClient) -> None:
    bad, good = await office.projects(2)
    await office.spoil(bad)
    assert await got(client, "/projects?level=GOOD") == []
    answer = await client.post("/jobs/health-check/run")
    assert answer.status_code == 202
    await office.worker.run_pending()
    shown = await got(client, "/jobs/health-check/runs")
    assert [(run["succeeded"], run["failed"]) for run in shown["runs"]] == [(1, 1)]
    assert [tick["outcome"] for tick in shown["ticks"]] == ["fired"]
    assert [project["id"] for project in await got(client, "/projects?level=GOOD")] == [good]
    assert (await got(client, f"/projects/{bad}"))["health_error"].startswith("UnusableFacts")
    (check,) = await got(client, f"/projects/{good}/checks")
    assert (check["level"], check["score"]) == ("GOOD", 75.0)
    assert await got(client, f"/projects/{bad}/checks") == []


async def test_a_second_click_at_the_same_moment_is_told_so(office: Office, client: httpx.AsyncClient) -> None:
    assert (await client.post("/jobs/health-check/run")).status_code == 202
    assert (await client.post("/jobs/health-check/run")).status_code == 409


async def test_what_was_made_for_people_is_shown(office: Office, client: httpx.AsyncClient) -> None:
    for path in ("/alerts", "/reports", "/reminders", "/users/1/briefings"):
        assert await got(client, path) == []
    (project,) = await office.projects(1)
    await office.report("DAILY", office.clock.now(), project)
    await office.do(
        "insert into checkpoints (project_id, title, due_on) values (%(p)s, 'naïve 🎂', %(d)s)",
        p=project,
        d=office.clock.now().date(),
    )
    await office.do("insert into users (name) values ('<script>')")
    for job in JOBS:
        await office.run(job)
    assert [report["frequency"] for report in await got(client, "/reports")] == ["DAILY"]
    assert len(await got(client, f"/projects/{project}/reports")) == 1
    assert [reminder["title"] for reminder in await got(client, "/reminders")] == ["naïve 🎂"]
    assert len(await got(client, "/users/1/briefings")) == 1


async def test_the_jobs_are_listed_with_their_locks_and_times(office: Office, client: httpx.AsyncClient) -> None:
    jobs = await got(client, "/jobs")
    assert [job["lock_key"] for job in jobs] == [job.lock_key for job in JOBS]
    assert {job["state"] for job in jobs} == {"active"}
    assert all(job["next_due_at"] for job in jobs)


WRONG = {
    "/projects/1": 404,
    "/projects/0": 422,
    "/projects/abc": 422,
    "/projects/9223372036854775808": 422,
    "/projects/1/checks": 404,
    "/projects/1/reports": 404,
    "/projects?level=BAD": 422,
    "/projects?most=0": 422,
    "/projects?after=-1": 422,
    "/projects?after=1e18": 422,
    "/jobs/nothing/runs": 404,
    "/jobs/%27%3B/runs": 404,
    "/jobs/health-check/runs?most=1001": 422,
    "/jobs/health-check/run": 405,
    "/users/-1/briefings": 422,
}


async def test_what_is_not_there_or_cannot_be_is_an_answer_and_no_error(client: httpx.AsyncClient) -> None:
    assert {path: (await client.get(path)).status_code for path in WRONG} == WRONG
    assert (await client.post("/jobs/nothing/run")).status_code == 404


async def test_before_any_worker_has_started_a_run_by_hand_is_refused(
    office: Office, client: httpx.AsyncClient
) -> None:
    await office.do("delete from trueup.schedules")
    assert (await client.post("/jobs/health-check/run")).status_code == 409
    assert {job["state"] for job in await got(client, "/jobs")} == {"not started"}
    assert await got(client, f"/jobs/{HEALTH_CHECK.name}/runs") == {"ticks": [], "runs": []}


async def test_the_page_that_describes_it_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    assert "/jobs/{name}/run" in page
    assert "http" not in page


# -- what people enter ------------------------------------------------------------------------------------------------


async def test_what_is_entered_over_the_api_is_worked_on(office: Office, client: httpx.AsyncClient) -> None:
    async def entered(path: str, expected: int = 201, method: str = "POST", **body: Any) -> dict[str, Any]:
        answer = await client.request(method, path, json=body or None)
        assert answer.status_code == expected, answer.text
        made: dict[str, Any] = answer.json()
        return made

    now = office.clock.now()
    ada = await entered("/users", name="Ada", timezone="Asia/Kathmandu", briefing_hour=0)
    project = await entered("/projects", name="naïve 🎂")
    where = f"/projects/{project['id']}"
    await entered(f"{where}/members", 200, "PUT", user_id=ada["id"], weekly_hours=36)
    await entered(f"{where}/tasks", title="ship it", status="BLOCKED", due_at=now.isoformat())
    checkpoint = await entered(f"{where}/checkpoints", title="beta", due_on=str(now.date()))
    wanted = await entered(f"{where}/report-schedules", frequency="MONTHLY", next_run=now.isoformat())
    for job in JOBS:
        await office.run(job)
    assert (await got(client, where))["health_score"] is not None
    assert len(await got(client, f"{where}/reports")) == 1
    assert [each["title"] for each in await got(client, "/reminders")] == ["beta"]
    assert len(await got(client, f"/users/{ada['id']}/briefings")) == 1
    assert [each["name"] for each in await got(client, "/users")] == ["Ada"]
    assert (await entered(f"/checkpoints/{checkpoint['id']}/done", 200))["done"] is True
    assert (await entered(f"/report-schedules/{wanted['id']}", 200, "DELETE"))["active"] is False
    assert (await entered(where, 200, "PATCH", status="PAUSED"))["status"] == "PAUSED"


REFUSED: list[tuple[str, str, Any, int]] = [
    ("POST", "/users", {"name": "Ada", "timezone": "Europe/Nowhere"}, 422),
    ("POST", "/users", {"name": "  "}, 422),
    ("POST", "/users", {"name": "A\x00"}, 422),
    ("POST", "/users", {"name": "Ada", "briefing_hour": 24}, 422),
    ("POST", "/projects", {"name": "p", "status": "GONE"}, 422),
    ("PATCH", "/projects/999", {"status": "DONE"}, 404),
    ("PUT", "/projects/999/members", {"user_id": 1}, 404),
    ("PUT", "/projects/1/members", {"user_id": 999}, 404),
    ("PUT", "/projects/1/members", {"user_id": 1, "weekly_hours": 169}, 422),
    ("POST", "/projects/1/tasks", {"title": "t", "status": "DONE"}, 422),
    ("POST", "/projects/1/tasks", {"title": "t", "due_at": "2026-01-01T00:00:00"}, 422),
    ("POST", "/projects/1/tasks", {"title": "t", "due_at": "0001-01-01T00:00:00+14:00"}, 422),
    ("POST", "/projects/1/checkpoints", {"title": "c", "due_on": "1999-12-31"}, 422),
    ("POST", "/projects/1/report-schedules", {"frequency": "YEARLY", "next_run": "2026-01-01T00:00:00Z"}, 422),
    ("POST", "/projects/999/report-schedules", {"frequency": "DAILY", "next_run": "2026-01-01T00:00:00Z"}, 404),
    ("DELETE", "/report-schedules/999", None, 404),
]


async def test_what_cannot_be_is_refused_and_named(office: Office, client: httpx.AsyncClient) -> None:
    await office.projects(1)
    await office.do("insert into users (name) values ('Ada')")
    for method, path, body, status in REFUSED:
        answer = await client.request(method, path, json=body)
        assert answer.status_code == status, (method, path, body, answer.text)
        assert answer.json()["detail"], (method, path, body)
