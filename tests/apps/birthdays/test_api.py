"""The HTTP API: what it does, and that bad input is told what is wrong with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio

from apps.birthdays.api import make_api
from tests.apps.birthdays.desk import Desk
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

ADA = {"first_name": "Ada", "last_name": "Lovelace", "date_of_birth": "1990-12-10", "timezone": "Europe/London"}


@pytest_asyncio.fixture
async def api(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_api(desk.service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        yield client


async def dead_letter(desk: Desk) -> dict[str, Any]:
    await desk.due()
    desk.receiver.answer = lambda message: 400
    await desk.sweep()
    desk.receiver.answer = lambda message: 200
    return (await desk.events())[0]


async def test_a_user_can_be_created_read_changed_and_deleted(api: httpx.AsyncClient) -> None:
    created = await api.post("/users", json=ADA)
    assert created.status_code == 201
    user = created.json()
    assert user == {"id": user["id"], **ADA}
    where = f"/users/{user['id']}"
    assert (await api.get(where)).json() == user
    assert (await api.get("/users")).json() == [user]
    changed = await api.patch(where, json={"timezone": "Asia/Tokyo", "first_name": "Zoë 👩‍👩‍👧"})
    assert changed.json() == {**user, "timezone": "Asia/Tokyo", "first_name": "Zoë 👩‍👩‍👧"}
    assert (await api.get(where)).json() == changed.json()
    (event,) = (await api.get(f"{where}/events")).json()
    assert (event["status"], event["target_timestamp_utc"]) == ("PENDING", "2026-12-10T00:00:00Z")
    assert (await api.delete(where)).status_code == 204
    for gone in (await api.get(where), await api.delete(where), await api.get(f"{where}/events")):
        assert gone.status_code == 404
    assert (await api.patch(where, json={"first_name": "A"})).status_code == 404


async def test_users_come_a_page_at_a_time(api: httpx.AsyncClient) -> None:
    ids = [(await api.post("/users", json=ADA)).json()["id"] for _ in range(5)]
    first = (await api.get("/users", params={"most": 3})).json()
    rest = (await api.get("/users", params={"most": 3, "after": first[-1]["id"]})).json()
    assert [user["id"] for user in first + rest] == ids


BAD_INPUT: list[tuple[str, Any, str]] = [
    ("timezone", "Mars/Olympus", "there is no such zone"),
    ("timezone", "localtime", "its meaning differs from host to host"),
    ("timezone", "posixrules", "refused"),
    ("timezone", "right/UTC", "refused"),
    ("timezone", "UTC+3", "an offset is not a zone"),
    ("timezone", "../etc/passwd", "there is no such zone"),
    ("timezone", "", "it is empty"),
    ("timezone", "x" * 101, "at most 100"),
    ("timezone", "Europe/London\0", "there is no such zone"),
    ("date_of_birth", f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}", "to today is needed"),
    ("date_of_birth", "1899-12-31", "to today is needed"),
    ("date_of_birth", "1990-02-30", "day value is outside"),
    ("date_of_birth", "yesterday", "valid date"),
    ("date_of_birth", 0, "a date such as"),
    ("date_of_birth", [1990, 1, 1], "a date such as"),
    ("first_name", "", "at least 1"),
    ("first_name", "   ", "a name is needed"),
    ("first_name", "a\0b", "without control characters"),
    ("first_name", "a\nb", "without control characters"),
    ("first_name", "a\u2028b", "without control characters"),
    ("first_name", "x" * 201, "at most 200"),
    ("last_name", 7, "valid string"),
    ("last_name", {"$gt": ""}, "valid string"),
    ("id", 7, "Extra inputs"),
    ("admin", True, "Extra inputs"),
]


async def test_bad_input_is_refused_and_named(api: httpx.AsyncClient) -> None:
    user = (await api.post("/users", json=ADA)).json()
    for field, value, said in BAD_INPUT:
        for answer in (
            await api.post("/users", json={**ADA, field: value}),
            await api.patch(f"/users/{user['id']}", json={field: value}),
        ):
            assert answer.status_code == 422, (field, value)
            (detail,) = answer.json()["detail"]
            assert detail["loc"][:2] == ["body", field]
            assert said in detail["msg"]
    assert (await api.get("/users")).json() == [user]


@pytest.mark.parametrize("field", list(ADA))
async def test_nulls_and_what_is_missing_are_refused(api: httpx.AsyncClient, field: str) -> None:
    user = (await api.post("/users", json=ADA)).json()
    assert (await api.post("/users", json={**ADA, field: None})).status_code == 422
    assert (await api.post("/users", json={name: ADA[name] for name in ADA if name != field})).status_code == 422
    assert (await api.patch(f"/users/{user['id']}", json={field: None})).status_code == 422
    assert (await api.patch(f"/users/{user['id']}", json={})).status_code == 422


HARDLY_JSON = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b"\xff\xfe",
    b'{"first_name": "\\ud800"}',
    b'{"first_name": NaN, "date_of_birth": Infinity}',
    b'{"date_of_birth": 1e400}',
    b'{"first_name": ' + b"9" * 5000 + b"}",
    b"[" * 100_000,
]


async def test_what_is_hardly_json_is_refused(api: httpx.AsyncClient) -> None:
    for body in HARDLY_JSON:
        answer = await api.post("/users", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), body[:30]
        assert answer.json()["detail"], body[:30]


ODD = [
    ("GET", "/users/1000000000000000000", 404),
    ("GET", f"/users/{10**30}", 422),
    ("GET", "/users/0", 422),
    ("GET", "/users/-1", 422),
    ("GET", "/users/abc", 422),
    ("GET", "/users/%00", 422),
    ("GET", "/users/'", 422),
    ("DELETE", f"/users/{2**63}", 422),
    ("GET", "/users?after=-1", 422),
    ("GET", f"/users?after={2**63}", 422),
    ("GET", "/users?most=0", 422),
    ("GET", "/users?most=100000", 422),
    ("GET", "/events?status=pending", 422),
    ("GET", "/events?most=x", 422),
    ("POST", "/dead-letters/7/requeue", 422),
    ("POST", "/dead-letters/00000000-0000-0000-0000-000000000000/requeue", 404),
    ("POST", "/users/1", 405),
    ("GET", "/nothing", 404),
]


async def test_odd_paths_and_queries_are_never_an_error_of_ours(api: httpx.AsyncClient) -> None:
    for method, path, status in ODD:
        answer = await api.request(method, path)
        assert answer.status_code == status, (method, path)
        assert answer.json()["detail"], (method, path)


async def test_messages_are_listed_by_status(api: httpx.AsyncClient, desk: Desk) -> None:
    await desk.due()
    await desk.sweep()
    for status, year in (("COMPLETED", 2026), ("PENDING", 2027)):
        (event,) = (await api.get("/events", params={"status": status})).json()
        assert event["target_year"] == year
    assert len((await api.get("/events")).json()) == 2
    assert (await api.get("/events", params={"status": "DEAD"})).json() == []


async def test_a_dead_letter_is_shown_and_can_be_tried_again(api: httpx.AsyncClient, desk: Desk) -> None:
    event = await dead_letter(desk)
    (letter,) = (await api.get("/dead-letters")).json()
    assert letter["event_id"] == str(event["id"])
    assert (letter["attempts"], letter["first_name"]) == (1, "Ada")
    assert "answered 400" in letter["last_error"]
    assert (await api.post(f"/dead-letters/{event['id']}/requeue")).json() == {"requeued": 1}
    assert (await api.post(f"/dead-letters/{event['id']}/requeue")).status_code == 404
    assert (await api.get("/dead-letters")).json() == []
    await desk.sweep()
    assert (await desk.events())[0]["status"] == "COMPLETED"


async def test_all_dead_letters_can_be_tried_again(api: httpx.AsyncClient, desk: Desk) -> None:
    for _ in range(3):
        await dead_letter(desk)
    assert (await api.post("/dead-letters/requeue")).json() == {"requeued": 3}
    assert (await api.post("/dead-letters/requeue")).json() == {"requeued": 0}


async def test_health_is_503_when_nobody_has_looked_for_five_minutes(
    api: httpx.AsyncClient, desk: Desk, clock: ManualClock
) -> None:
    never = await api.get("/health")
    assert (never.status_code, never.json()["last_run"]) == (503, None)
    await desk.sweep()
    assert (await api.get("/health")).status_code == 200
    clock.advance(minutes=6)
    down = await api.get("/health")
    assert down.status_code == 503
    assert down.json() == {"sending": False, "last_run": "2026-06-01T12:00:00Z", "minutes_since_last_run": 6.0}


async def test_recovery_tells_what_is_behind_and_when_it_is_caught_up(api: httpx.AsyncClient, desk: Desk) -> None:
    await desk.sweep()
    await desk.due(hours=5)
    before = (await api.get("/recovery")).json()
    assert before["caught_up"] is False
    await desk.sweep()
    after = (await api.get("/recovery")).json()
    assert after["caught_up"] is True
    assert after["summary"]


async def test_the_description_loads_and_names_every_path(api: httpx.AsyncClient) -> None:
    described = (await api.get("/openapi.json")).json()
    assert {"/users", "/users/{user_id}", "/events", "/dead-letters", "/health", "/recovery"} <= set(described["paths"])
    assert (await api.get("/docs")).status_code == 200


async def test_a_user_stored_by_other_means_is_shown_whatever_it_is(api: httpx.AsyncClient, desk: Desk) -> None:
    await desk.do(
        "insert into users (first_name, last_name, date_of_birth, timezone) values ('', '', '3000-01-01', 'Mars')"
    )
    (user,) = (await api.get("/users")).json()
    assert user["timezone"] == "Mars"
    answer = await api.patch(f"/users/{user['id']}", json={"date_of_birth": "1990-01-01"})
    assert answer.status_code == 422
