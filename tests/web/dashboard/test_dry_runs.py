"""Dry runs from the dashboard: an operator sees what a sweep would do, a viewer cannot start what calls users' code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from tests.web.dashboard.test_who_may import OPERATOR, TOKENS, VIEWER, client, log_in
from trueup import App, Row, Stay
from trueup.web import dashboard
from trueup.web.dashboard import dry_runs
from trueup.web.guard import Application

pytestmark = pytest.mark.asyncio

TABLES = """
create table papers (id int primary key, state text not null, note text, made_at timestamptz default now() - interval '1 hour');
insert into papers select n, 'new' from generate_series(1, 5) as n;
insert into papers values (101, 'old');
"""
EVIL = "<script>alert(1)</script>"
SECRET = "hunter2-and-more"


class Shop:
    """An App with a reconciler, a deletion and a scan, all of which note when their code is called."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.called: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        papers = app.table("papers", key="id", state="state", changed_at="made_at")
        papers.delete("old", name="drop_old", max_fraction=0.1, stale_for="1m")

        @papers.reconcile("new", claim="row_lock")
        async def review(paper: Row, *, tx: AsyncConnection[Any]) -> Stay:
            self.called.append(f"review {paper['id']}")
            await self.may_end.wait()
            await tx.execute("update papers set note = 'seen'")
            if paper["id"] == 2:
                raise ValueError(EVIL)
            return Stay(note=f"password={SECRET}" if paper["id"] == 3 else EVIL)

        @app.scan("objects", every="1h")
        async def objects(cursor: int | None) -> AsyncIterator[tuple[str, int]]:
            self.called.append("objects")
            for n in range(cursor or 0, 3):
                yield f"{EVIL} {n}", n + 1

        @objects.each
        async def seen(item: str) -> None:
            self.called.append("seen")


@pytest_asyncio.fixture
async def shop(app: App, database_url: str) -> Shop:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)
    await app.open()
    return Shop(app)


@pytest_asyncio.fixture
async def site(shop: Shop) -> Application:
    return dashboard.asgi(shop.app, TOKENS, redact=_redact)


def _redact(kind: str, value: Any) -> Any:
    return value.replace(" 1'", " …'") if kind == "objects" else value


async def asked(site: Application, name: str, token: str = OPERATOR, **body: Any) -> httpx.Response:
    async with client(site, headers={"authorization": f"Bearer {token}"}) as program:
        return await program.post(f"/api/v1/trueup/reconcilers/{name}/dry-run", json=body)


def untouched(database_url: str) -> bool:
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "select (select count(*) from papers where note is not null), (select count(*) from papers),"
            " (select count(*) from trueup.rows)"
        ).fetchone()
    return row == (0, 6, 0)


async def test_an_operator_lists_rows_by_a_form_and_everybody_sees_them(
    shop: Shop, site: Application, database_url: str
) -> None:
    async with client(site) as operator, client(site, headers={"authorization": f"Bearer {VIEWER}"}) as viewer:
        csrf = await log_in(operator, OPERATOR)
        assert 'id="dry-run"' not in (await viewer.get("/trueup/reconcilers/review")).text
        form = {"csrf": csrf, "rows": "3", "shadow": "", "back": "/trueup/reconcilers/review#dry-run"}
        answer = await operator.post("/trueup/reconcilers/review/dry-run", data=form)
        assert answer.headers["location"] == "/trueup/reconcilers/review#dry-run"
        page = (await operator.get("/trueup/reconcilers/review")).text
        assert "3 of 5 rows; would call" in page
        assert "Dry run of review: 3 rows. Nothing was changed." in page
        seen = (await viewer.get("/trueup/reconcilers/review")).text
        assert [f"row?key={key}" in seen for key in (1, 2, 3, 4)] == [True, True, True, False]
        assert "/trueup/reconcilers/review/dry-run" not in seen
    assert shop.called == []
    assert untouched(database_url)


async def test_in_shadow_outcomes_are_text_without_secrets_and_looking_calls_nothing_again(
    shop: Shop, site: Application, database_url: str
) -> None:
    answer = (await asked(site, "review", shadow=True)).json()
    assert [row["outcome"] for row in answer["rows"][:2]] == [
        f"Stay(note='{EVIL}')",
        f"raises ValueError: {EVIL}",
    ]
    assert (answer["shadow"], answer["by"], answer["total"]) == (True, "Otto", 5)
    called = list(shop.called)
    async with client(site, headers={"authorization": f"Bearer {VIEWER}"}) as viewer:
        for _ in range(2):
            page = (await viewer.get("/trueup/reconcilers/review")).text
    assert sorted(called) == [f"review {n}" for n in range(1, 6)]
    assert shop.called == called
    assert SECRET not in page + str(answer)
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    assert untouched(database_url)


async def test_a_dry_run_of_a_scan_shows_items_and_of_a_deletion_why_it_would_be_refused(
    shop: Shop, site: Application, database_url: str
) -> None:
    scanned = (await asked(site, "objects", limit=2)).json()
    assert [(row["item"], row["next_cursor"]) for row in scanned["rows"]] == [
        (f"'{EVIL} 0'", "1"),
        (f"'{EVIL} …'", "2"),  # as `redact` says
    ]
    assert (scanned["more"], shop.called) == (True, ["objects"])
    refused = (await asked(site, "drop_old")).json()
    assert (refused["would"], refused["total"]) == ("delete", 1)
    assert "1 of 6 rows" in refused["why"]
    async with client(site, headers={"authorization": f"Bearer {OPERATOR}"}) as operator:
        assert "Would be refused: 1 of 6 rows" in (await operator.get("/trueup/reconcilers/drop_old")).text
        page = (await operator.get("/trueup/reconcilers/objects")).text
    assert "2 items, and more; would call" in page
    assert EVIL not in page
    assert shop.called == ["objects"]
    assert untouched(database_url)


@pytest.mark.parametrize("error", [None, f"OSError: {EVIL}"])
async def test_a_scan_has_its_pages_whether_it_fails_or_was_never_run(
    shop: Shop, site: Application, database_url: str, error: str | None
) -> None:
    records = {each["name"]: each for each in await shop.app.reconcilers.list()}
    assert records["objects"].keys() - {"scan"} == records["review"].keys()
    if error is not None:
        await shop.app.reconcilers.run("objects")
        with psycopg.connect(database_url) as connection:
            connection.execute("update trueup.scans set error = %s, failures = 3", [error])
    async with client(site, headers={"authorization": f"Bearer {OPERATOR}"}) as operator:
        for path in ("/trueup/reconcilers", "/trueup/reconcilers/objects"):
            page = await operator.get(path)
            assert (page.status_code, EVIL in page.text) == (200, False)
            assert ("OSError: &lt;script&gt;" in page.text) is (error is not None)
        found = (await operator.get("/api/v1/trueup/reconcilers/objects")).json()
    assert (found["what"], found["last_error"]) == ("scan", error)


@pytest.mark.parametrize("name", ["review", "objects", "drop_old"])
async def test_a_viewer_starts_none_by_any_way(shop: Shop, site: Application, name: str) -> None:
    assert (await asked(site, name, VIEWER, shadow=name == "review")).status_code == 403
    path = f"/trueup/reconcilers/{name}/dry-run"
    async with client(site) as viewer:
        csrf = await log_in(viewer, VIEWER)
        assert (await viewer.post(path, data={"csrf": csrf, "rows": "1", "shadow": "yes"})).status_code == 403
        for way in (path, f"/trueup/reconcilers/{name}?rows=1&shadow=yes", f"/api/v1{path}"):
            await viewer.get(way)
    assert shop.called == []


@pytest.mark.parametrize(
    ("name", "body", "status", "said"),
    [
        ("review", {"limit": 0}, 422, "limit"),
        ("review", {"limit": dry_runs.MAX_ROWS + 1}, 422, "limit"),
        ("none", {}, 404, "none"),
        ("objects", {"shadow": True}, 409, "no shadow mode"),
        ("drop_old", {"shadow": True}, 409, "no handler"),
    ],
)
async def test_one_that_cannot_be_is_refused_with_a_sentence(
    shop: Shop, site: Application, name: str, body: dict[str, Any], status: int, said: str
) -> None:
    answer = await asked(site, name, **body)
    assert (answer.status_code, said in answer.json()["error"]) == (status, True)
    async with client(site) as operator:
        csrf = await log_in(operator, OPERATOR)
        form = {"csrf": csrf, "rows": str(body.get("limit", 1)), "shadow": "yes" if body.get("shadow") else ""}
        await operator.post(f"/trueup/reconcilers/{name}/dry-run", data=form)
        page = (await operator.get("/trueup")).text
        assert '<p class="said wrong" role="status">' in page
    assert shop.called == []


async def test_one_at_a_time_and_one_that_takes_too_long_is_stopped(
    shop: Shop, site: Application, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    shop.may_end.clear()
    first = asyncio.ensure_future(asked(site, "review", shadow=True, limit=1))
    async with asyncio.timeout(20):
        while not shop.called:
            await asyncio.sleep(0.01)
    second = await asked(site, "review", limit=1)
    assert (second.status_code, "under way" in second.json()["error"]) == (409, True)
    shop.may_end.set()
    assert (await first).status_code == 200
    shop.may_end.clear()
    monkeypatch.setattr(dry_runs, "TIMEOUT", 0.2)
    slow = await asked(site, "review", shadow=True, limit=1)
    assert (slow.status_code, "was stopped after 0.2 seconds" in slow.json()["error"]) == (409, True)
    monkeypatch.setattr(dry_runs, "TIMEOUT", 60)
    assert (await asked(site, "review", limit=1)).status_code == 200
    assert untouched(database_url)
