"""What pages that follow by themselves cost: one look for all of them, and the dearer it is the more rarely."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import httpx
import pytest

from tests.support.proxy import Proxy
from tests.web.dashboard.serving import served
from tests.web.dashboard.test_who_may import TOKENS, VIEWER, client
from trueup import App
from trueup.web import dashboard
from trueup.web.dashboard import auth, site, source
from trueup.web.dashboard.auth import COOKIE
from trueup.web.dashboard.site import pause
from trueup.web.dashboard.source import Source

pytestmark = pytest.mark.asyncio


async def test_a_dear_answer_is_older_on_a_page_that_follows_than_on_one_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, looks = 0.0, 0

    async def look() -> int:
        nonlocal now, looks
        now, looks = now + 0.05, looks + 1
        return looks

    monkeypatch.setattr(source, "elapsed", lambda: now)
    shown = Source("shop", App("postgresql://nowhere/shop"))
    following = shown.followed()
    assert await shown.shared("queues", look) == 1
    now += 1.5
    assert await following.shared("queues", look) == 1, "fifty times 50 ms have not passed"
    assert await shown.shared("queues", look) == 2, "a person who asks gets a new one after a second"
    assert await following.shared("queues", look) == 2, "which is kept for all"
    now += 2.6
    assert await following.shared("queues", look) == 3
    shown.forget()
    assert await following.shared("queues", look) == 4, "after an action everything is looked at anew"


@pytest.mark.parametrize("answers", [1, 5, 40])
async def test_live_pages_take_a_fiftieth_of_a_core_together_however_much_they_show(
    monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    now, spent = 0.0, 0.0

    async def look() -> None:
        nonlocal now, spent
        now, spent = now + 0.02, spent + 0.02

    monkeypatch.setattr(source, "elapsed", lambda: now)
    following = Source("shop", App("postgresql://nowhere/shop")).followed()
    for _ in range(300):
        for number in range(answers):
            await following.shared(number, look)
        now += 2.0
    assert 0 < spent / now < 0.025


async def test_a_count_that_waits_for_a_lock_makes_nothing_else_on_the_page_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, looks = 0.0, 0

    async def look() -> int:
        nonlocal looks
        looks += 1
        return looks

    async def count() -> None:
        nonlocal now
        now += 30.0

    monkeypatch.setattr(source, "elapsed", lambda: now)
    following = Source("shop", App("postgresql://nowhere/shop")).followed()
    await following.shared("waiting", count, beside=True)
    assert await following.shared("queues", look) == 1
    now += 2.0
    await following.shared("waiting", count, beside=True)
    assert now < 40, "the count is kept for as long as before"
    assert await following.shared("queues", look) == 2


async def test_a_look_from_before_an_action_is_not_shown_after_it() -> None:
    begun, goes_on, looks = asyncio.Event(), asyncio.Event(), 0

    async def look() -> int:
        nonlocal looks
        looks += 1
        seen = looks
        begun.set()
        await goes_on.wait()
        return seen

    shown = Source("shop", App("postgresql://nowhere/shop"))
    before = asyncio.create_task(shown.shared("jobs", look))
    await begun.wait()
    shown.forget()
    after = asyncio.create_task(shown.followed().shared("jobs", look))
    goes_on.set()
    assert (await before, await after) == (1, 2)
    assert await shown.shared("jobs", look) == 2, "the look from before was not kept"


async def first_of_stream(here: httpx.AsyncClient, path: str) -> str:
    """What a page shows first when it begins to follow; nothing if it ends before that."""
    async with here.stream("GET", path, headers={"accept": "text/event-stream"}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                return line
    return ""


async def test_a_page_that_is_looked_at_again_does_not_begin_with_what_was_kept_for_live_pages(
    app: App, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tab that was hidden, for instance. On a slow server answers are kept for live pages for up to a minute."""
    monkeypatch.setattr(source, "LIVE_TIMES", 1e9)
    await app.open()
    with served(dashboard.asgi({"shop": App(database_url)}, closes=True)) as address:
        async with httpx.AsyncClient(base_url=address) as here:
            assert "parcels" not in await first_of_stream(here, "/shop/queues")
            await app.jobs.pause(queue="parcels")
            async with asyncio.timeout(source.LIVE_FOR / 2):
                while "parcels" not in await first_of_stream(here, "/shop/queues"):
                    await asyncio.sleep(0.05)


async def test_a_page_stops_following_when_the_session_ends(
    database_url: str, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.open()
    begun, cookies = time.time(), {COOKIE: TOKENS.session(VIEWER)}
    with served(dashboard.asgi({"shop": App(database_url)}, TOKENS, closes=True)) as address:
        async with (
            httpx.AsyncClient(base_url=address, cookies=cookies, timeout=30) as here,
            here.stream("GET", "/shop/queues", headers={"accept": "text/event-stream"}) as answer,
            asyncio.timeout(20),
        ):
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    monkeypatch.setattr(auth, "time", SimpleNamespace(time=lambda: begun + auth.SESSION_FOR + 1))
    assert line == ""


@pytest.mark.parametrize("at", [10.0, 10.1, 11.3, 11.999])
async def test_live_pages_look_at_the_same_moments_whenever_they_were_opened(at: float) -> None:
    assert at + pause(at) == pytest.approx(12.0)


@pytest.mark.parametrize("how", ["cut", "black_hole"])
async def test_a_database_that_stops_answering_is_noticed_by_pages_in_seconds(
    database_url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long callers of the App would wait for a connection."""
    monkeypatch.setattr(site, "ANSWERS_WITHIN", 0.3)
    with Proxy.before(database_url) as proxy:
        app = App(proxy.url(database_url))
        async with client(dashboard.asgi({"shop": app})) as here:
            assert (await here.get("/shop/fleet")).status_code == 200
            getattr(proxy, how)()
            async with asyncio.timeout(15):  # pool_timeout is 30 s
                for path in ("/shop/fleet", "/api/v1/shop/fleet"):
                    assert "127.0.0.1" in (await answered(here, path, 503)).text
            proxy.heal()
            proxy.reset()
            async with asyncio.timeout(60):
                await answered(here, "/shop/fleet", 200)
        await app.close()


async def answered(here: httpx.AsyncClient, path: str, status: int) -> httpx.Response:
    """Asked until it is answered like this: what was looked at a moment ago is shown once more."""
    while (answer := await here.get(path)).status_code != status:
        await asyncio.sleep(0.05)
    return answer
