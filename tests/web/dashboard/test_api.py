"""The JSON API: the same as the pages, typed, and without a 500 whatever it is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error

from tests.support.database import TestServer
from tests.support.matrix import count
from tests.web.dashboard.filled import fill, shop
from tests.web.dashboard.serving import served
from trueup.web import dashboard
from trueup.web.dashboard.api.openapi import document

OPERATOR = {"authorization": "Bearer operator-token-of-ours"}
EXAMPLES = count(4, proof=8)  # for each operation
OPERATIONS = [(method.upper(), path) for path, methods in document("/api/v1")["paths"].items() for method in methods]


@contextmanager
def addressed(server: TestServer) -> Iterator[str]:
    auth = dashboard.Tokens({"operator-token-of-ours": ("Otto", "operator")})
    with server.database() as url:
        fill(url, jobs=300)
        with served(dashboard.asgi({"shop": shop(url)}, auth, closes=True)) as address:
            yield address


@contextmanager
def connected(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/api/v1", headers=OPERATOR, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def address(server: TestServer) -> Iterator[str]:
    with addressed(server) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    with connected(address) as client:
        yield client


@pytest.fixture(scope="module")
def kept(server: TestServer) -> Iterator[str]:
    """The address for tests that only read: the others may come first, in a process that takes tests over from another one."""
    with addressed(server) as address:
        yield address


@pytest.fixture(scope="module")
def asked(server: TestServer) -> Iterator[str]:
    """The address for requests that nobody would make, and that may do anything."""
    with addressed(server) as address:
        yield address


@pytest.fixture(scope="module")
def reader(kept: str) -> Iterator[httpx.Client]:
    with connected(kept) as client:
        yield client


def test_it_says_what_the_pages_say(reader: httpx.Client) -> None:
    assert reader.get("/sources").json() == {"sources": ["shop"]}
    overview = reader.get("/shop/overview").json()
    assert overview["workers_alive"] == 3
    assert not overview["ok"]
    assert {each["check"] for each in overview["findings"]} >= {"sweeps"}
    spans = reader.get("/shop/flow", params={"window": "1h"}).json()["spans"]
    live = sum(each["queued"] + each["running"] for each in overview["queues"])
    assert (len(spans), spans[-1]["backlog"]) == (60, live)
    assert sum(each["done"] for each in spans) > 0
    (ships,) = [e for e in reader.get("/shop/reconcilers").json()["reconcilers"] if e["name"] == "ship_paid_orders"]
    assert ships["waiting"] > 0 < ships["rate"]
    assert ships["eta_s"] == pytest.approx(ships["waiting"] / ships["rate"])
    row = reader.get("/shop/reconcilers/ship_paid_orders/row", params={"key": "70311"}).json()
    assert (row["state"], row["attempt"]) == ("quarantined", 5)
    assert [each["headline"] for each in row["timeline"]][:2] == ["Set aside", "Attempt 5 failed"]
    assert reader.get("/shop/reconcilers/ship_paid_orders/row", params={"key": "none"}).status_code == 404
    dead = reader.get("/shop/jobs", params={"state": "dead", "limit": 2}).json()
    assert [job["state"] for job in dead["jobs"]] == ["dead", "dead"]
    following = reader.get("/shop/jobs", params={"state": "dead", "before": dead["next"]}).json()
    assert following["jobs"][0]["id"] < dead["jobs"][-1]["id"]
    charged = reader.get("/shop/jobs", params={"kind": "charge_card", "state": "done", "limit": 1}).json()["jobs"][0]
    one = reader.get(f"/shop/jobs/{charged['id']}").json()
    assert one["args"]["card_token"] == "***"
    failed = reader.get(f"/shop/jobs/{dead['jobs'][0]['id']}").json()
    older, *newer = failed["errors"]  # the first attempt by a release that did not store its worker
    assert [older[name] for name in ("holder", "term", "host", "pid")] == [None] * 4
    assert [each["host"] for each in newer] == ["worker-c", "worker-a", "worker-b"]
    assert [each["term"] for each in newer] == [failed["term"] - 2, failed["term"] - 1, failed["term"]]
    assert {each["name"] for each in reader.get("/shop/schedules").json()["schedules"]} >= {"refresh_rates"}
    assert reader.get("/shop/schedules/refresh_rates").json()["ticks"]
    assert reader.get("/shop/reconcilers/ship_paid_orders").json()["quarantine"]
    assert reader.get("/shop/fleet").json()["leases"]
    assert reader.get("/shop/recovery").json()["downtimes"]


SAID = {
    "": (
        r"Sweeps fail: mirror_stock .*?href=\"/shop/reconcilers\">Show the error",
        r"Rows are in quarantine: 5 of ship_paid_orders.*?Release or discard",
        *(
            r"<svg[^>]* aria-label=\"Jobs that ended",
            r"aria-label=\"Jobs queued and running",
            r"aria-label=\"Longest wait",
        ),
    ),
    "/schedules": (r"refresh_rates.*?<svg", r"daily_digest.*?Europe/Berlin"),
    "/schedules/refresh_rates": (r"<svg[^>]*aria-label=\"Ticks of refresh_rates", r"skipped.*?coalesced", r"late by"),
    "/schedules/settle_books": (r"Clock changes in 20\d\d.*?(Mar|Nov) \d\d",),
    "/reconcilers": (r"mirror_stock.*?failing.*?warehouse_stock&#34; does not exist", r"Waiting.*?Rate"),
    "/reconcilers/ship_paid_orders": (
        *(r"about \S+ left", r"/(s|min)<", r"aria-label=\"Outcomes of rows", r"70324.*?Release", r"Dry run"),
        r"Show its timeline",
    ),
    "/reconcilers/ship_paid_orders/row?key=70311": (r"Attempt 5 failed.*?Attempt 1 failed", r"Traceback"),
    "/fleet": (
        r"2 of release 2026.11.2",
        r"event loop was blocked 3 times.*?resize_image",
        *(r"nightly-export.*?held.*?worker-a", r"9 kinds, 4 schedules, 3 reconcilers", r"Term"),
    ),
    "/recovery": (r"ticks missed", r"<svg", r"coalesced"),
    "/alerts": (r"sweeps.*?failing", r"ticks.*?5m"),
    "/audit": (r"charge_card", r"cli|python|web"),
}


@pytest.mark.parametrize("path", SAID)
def test_a_page_says_what_it_is_for(kept: str, path: str) -> None:
    with httpx.Client(base_url=kept, headers=OPERATOR, timeout=30) as browser:
        text = browser.get(f"/shop{path}").text
    for expected in SAID[path]:
        assert re.search(expected, text, re.DOTALL), expected


def test_the_page_of_a_job_names_the_worker_and_the_term_of_each_attempt(reader: httpx.Client, kept: str) -> None:
    dead = reader.get("/shop/jobs", params={"state": "dead", "limit": 1}).json()["jobs"][0]["id"]
    errors = reader.get(f"/shop/jobs/{dead}").json()["errors"]
    page = httpx.get(f"{kept}/shop/jobs/{dead}", headers=OPERATOR).text
    made_by = re.findall(r'<div class="made-by">(.*?)</div>', page)
    assert made_by == [
        f"{each['host']}, pid {each['pid']}, term {each['term']}, holder {each['holder']}" for each in errors[:0:-1]
    ]
    assert page.count('<div class="attempt"') == len(errors)


def test_an_operator_acts_by_it(client: httpx.Client) -> None:
    dead = client.get("/shop/jobs", params={"state": "dead"}).json()["jobs"][0]["id"]
    assert client.post(f"/shop/jobs/{dead}/revive", json={}).status_code == 200
    assert client.get(f"/shop/jobs/{dead}").json()["state"] == "queued"
    assert client.post(f"/shop/jobs/{dead}/revive", json={}).status_code == 404
    assert client.post("/shop/schedules/close_carts/pause", json={}).json()["done"].endswith("paused")
    assert client.post("/shop/schedules/close_carts/resume", json={}).status_code == 200
    row = {"key": client.get("/shop/reconcilers/ship_paid_orders").json()["quarantine"][0]["key"]}
    assert client.post("/shop/reconcilers/ship_paid_orders/quarantine/release", json=row).status_code == 200
    assert client.post("/shop/reconcilers/ship_paid_orders/quarantine/release", json=row).status_code == 404


def test_it_tells_of_clock_changes_and_frees_all_of_quarantine(client: httpx.Client) -> None:
    year = client.get("/shop/schedules/settle_books/year", params={"year": 2026}).json()  # 2:30 in New York
    assert [(each["clocks"], each["reading"][:10]) for each in year["touched"]] == [("gap", "2026-03-08")]
    assert client.get("/shop/schedules/settle_books/year").status_code == 200
    assert client.get("/shop/schedules/none/year").status_code == 404
    assert client.post("/shop/reconcilers/expire_carts/release-all", json={}).json()["done"].endswith("0 rows released")
    assert client.post("/shop/reconcilers/none/release-all", json={}).status_code == 404


def test_queues_and_kinds_are_paused_by_it_and_checks_are_listed(client: httpx.Client) -> None:
    for what in ("queues", "kinds"):
        answer = client.post(f"/shop/{what}/mail/pause", json={"reason": "the provider is down"})
        assert answer.json()["done"].endswith("mail: paused")
        assert client.post(f"/shop/{what}/mail/pause", json={}).json()["done"].endswith("was paused already")
        (paused,) = client.get("/shop/queues").json()["paused"]
        assert (paused["what"] + "s", paused["paused_by"], paused["reason"]) == (what, "Otto", "the provider is down")
        assert client.post(f"/shop/{what}/mail/resume", json={}).json()["done"].endswith("resumed")
        assert client.post(f"/shop/{what}/mail/explode", json={}).status_code == 404
    rules = {each["check"]: each for each in client.get("/shop/alerts").json()["alerts"]}
    assert (rules["sweeps"]["state"], rules["workers"]["state"]) == ("failing", "ok")


def test_backfills_and_actions_on_many_jobs_are_runs_that_it_follows_and_stops(client: httpx.Client) -> None:
    ticks = client.get("/shop/schedules/refresh_rates").json()["ticks"]
    skipped = [tick["due_at"] for tick in ticks if tick["outcome"] == "skipped"]
    span = {"start": skipped[-1], "end": skipped[0]}
    assert client.get("/shop/schedules/refresh_rates/backfill", params=span).json()["missing"] == len(skipped)
    run = client.post("/shop/schedules/refresh_rates/backfill", json=span).json()
    assert (run["action"], run["state"], run["total"], run["by"]) == ("backfill", "waiting", len(skipped), "Otto")
    assert client.post(f"/shop/runs/{run['id']}/stop", json={}).json()["state"] == "undone"
    assert client.post(f"/shop/runs/{run['id']}/stop", json={}).status_code == 404
    dead = client.post("/shop/jobs-matching/discard", json={"state": ["dead"], "kind": "charge_card"}).json()
    number = len(client.get("/shop/jobs", params={"state": "dead", "kind": "charge_card"}).json()["jobs"])
    assert (dead["state"], dead["total"]) == ("waiting", number)
    assert client.get("/shop/runs").json()["runs"][0]["id"] == dead["id"]
    assert client.post(f"/shop/runs/{dead['id']}/stop", json={}).status_code == 200
    assert client.get("/shop/schedules/refresh_rates/backfill", params=span).json()["missing"] == len(skipped)
    assert client.get("/shop/schedules/none/backfill", params=span).status_code == 404
    assert client.get("/shop/schedules/refresh_rates/backfill").status_code == 422
    wrong = {"start": "soon", "end": skipped[0]}
    assert client.post("/shop/schedules/refresh_rates/backfill", json=wrong).status_code == 409


def test_what_was_done_by_it_is_recorded_with_the_name_of_the_token(client: httpx.Client) -> None:
    assert client.post("/shop/schedules/refresh_rates/pause", json={}).status_code == 200
    assert client.post("/shop/schedules/refresh_rates/resume", json={}).status_code == 200
    found = client.get("/shop/actions", params={"actor": "Otto", "name": "refresh_rates"}).json()
    assert [(each["action"], each["via"], each["count"]) for each in found["actions"]] == [
        ("resume", "web", 1),
        ("pause", "web", 1),
    ]
    first = client.get("/shop/actions", params={"limit": 1}).json()
    following = client.get("/shop/actions", params={"limit": 1, "before": first["next"]}).json()
    assert following["actions"][0]["id"] < first["actions"][0]["id"]


@pytest.mark.parametrize(
    ("method", "path", "given", "status"),
    [
        ("GET", "/shop/jobs?limit=0", {}, 422),
        ("GET", "/shop/jobs?state=undead", {}, 422),
        ("GET", "/shop/jobs?older=soon", {}, 409),
        ("GET", '/shop/jobs?arg=a="%5Cu0000"', {}, 409),
        ("GET", "/shop/jobs?arg=order", {}, 409),
        ("GET", "/shop/jobs?arg=order&arg=x=NaN", {}, 409),
        ("POST", "/shop/jobs-matching/discard", {"json": {"arg": ["order"]}}, 409),
        ("POST", "/shop/jobs-matching/discard", {"json": {"arg": ["order=1", "order=2"]}}, 409),
        ("POST", "/shop/jobs-matching/discard", {"json": {"error": "\u0000"}}, 409),
        ("GET", "/none/jobs", {}, 404),
        ("GET", "/shop/jobs/0", {}, 404),
        ("POST", "/shop/jobs/1/explode", {"json": {}}, 404),
        ("POST", "/shop/jobs/1/cancel", {"data": {"csrf": "x"}}, 415),
        ("POST", "/shop/jobs/1/cancel", {"content": b"{", "headers": {"content-type": "application/json"}}, 415),
        ("POST", "/shop/reconcilers/ship_paid_orders/quarantine/release", {"json": {}}, 422),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    client: httpx.Client, method: str, path: str, given: dict[str, Any], status: int
) -> None:
    answer = client.request(method, path, **given)
    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "where"),
    [
        (method, path, where)
        for method, path in OPERATIONS
        for where in ("params", "json")
        if path != "/sources" and (where, method) != ("json", "GET")
    ],
)
def test_a_name_that_means_nothing_is_refused(client: httpx.Client, method: str, path: str, where: str) -> None:
    """`{"kinds": "mail"}` to /jobs-matching/discard would be all dead jobs."""
    path = path.format(source="shop", id=1, name="settle_books", action="cancel", run=1)
    answer = client.request(method, path, **({"json": {}} | {where: {"kinds": "mail"}}))
    assert answer.status_code == 422


@pytest.mark.parametrize("name", ["kind", "queue", "schedule", "error", "older"])
@pytest.mark.parametrize("empty", ["", " "])
def test_a_condition_without_a_value_is_refused_and_does_not_select_all_jobs(
    client: httpx.Client, name: str, empty: str
) -> None:
    assert client.post("/shop/jobs-matching/cancel", json={name: empty}).status_code in (409, 422)
    assert client.get("/shop/jobs", params={name: empty}).status_code in (409, 422)


@pytest.mark.parametrize("name", ["state", "arg"])
def test_an_empty_list_of_values_is_refused_and_does_not_select_all_jobs(client: httpx.Client, name: str) -> None:
    assert client.post("/shop/jobs-matching/cancel", json={name: []}).status_code == 422


@cache
def described(address: str) -> Any:
    schema = schemathesis.openapi.from_dict(document("/api/v1"))
    schema.config.base_url = f"{address}/api/v1"
    return schema


NEEDED = {"/row": {"key": "70311"}, "/backfill": {"start": "2026-03-07T00:00Z", "end": "2026-03-10T00:00Z"}}


@pytest.mark.parametrize("path", [path for method, path in OPERATIONS if method == "GET"])
def test_what_it_answers_has_the_type_that_it_documents(reader: httpx.Client, kept: str, path: str) -> None:
    (job,) = reader.get("/shop/jobs", params={"state": "dead", "limit": 1}).json()["jobs"]
    name = "ship_paid_orders" if "/reconcilers/" in path else "settle_books"
    answer = reader.get(
        path.format(source="shop", id=job["id"], name=name),
        params=next((asked for end, asked in NEEDED.items() if path.endswith(end)), {}),
    )
    assert answer.status_code == 200, answer.text
    described(kept)[path]["GET"].validate_response(schemathesis.Response.from_httpx(answer, verify=True))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_whatever_it_is_asked_it_never_fails(asked: str, method: str, path: str) -> None:
    operation = described(asked)[path][method]
    strategy = operation.as_strategy()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def ask(case: Any) -> None:
        if "source" in case.path_parameters:
            case.path_parameters["source"] = "shop"
        case.call_and_validate(headers=OPERATOR, checks=[not_a_server_error])

    ask()
