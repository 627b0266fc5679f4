"""Who may do what on the dashboard, asked without a browser: strangers, viewers, forms from elsewhere, other machines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.routing import Route

from trueup import App, Context, injected
from trueup.cli.dashboard import auth_from, check_bind
from trueup.errors import ConfigError
from trueup.schedules.when import Every
from trueup.web import dashboard
from trueup.web.dashboard.api import routes as api_routes
from trueup.web.dashboard.api.endpoints import ENDPOINTS
from trueup.web.dashboard.site import PAGES, Site
from trueup.web.dashboard.source import sources
from trueup.web.guard import Application

VIEWER, OPERATOR = "token-of-a-viewer-x", "token-of-an-operator"
TOKENS = dashboard.Tokens({VIEWER: ("Vera", "viewer"), OPERATOR: ("Otto", "operator")})
HERE = ("127.0.0.1", 40_000)
PUBLIC = {"/-/login", "/-/{file}", "/-/logout"}


def all_routes() -> list[tuple[str, str]]:
    """(method, path) of everything that the dashboard answers."""
    site = Site(sources(App("postgresql://nowhere")), dashboard.Open(), None, undo_for=0, closes=False)
    listed: list[Route] = [*api_routes(site), *site.routes()]
    return sorted((method, route.path) for route in listed for method in (route.methods or set()) - {"HEAD"})


ROUTES = all_routes()
WRITES = [(method, path) for method, path in ROUTES if method != "GET" and path not in PUBLIC]
READS = [(method, path) for method, path in ROUTES if method == "GET" and path not in PUBLIC]


def filled(path: str) -> str:
    values = {"source": "trueup", "id": "1", "action": "pause", "name": "x", "run": "1", "file": "dashboard.css"}
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: values[found[1]], path)


@pytest_asyncio.fixture
async def site(app: App) -> AsyncIterator[Application]:
    await app.open()
    yield dashboard.asgi(app, TOKENS, hosts=["ops.example"])


def client(application: Application, address: tuple[str, int] = HERE, **options: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=application, client=address)
    options.setdefault("base_url", "http://127.0.0.1")
    return httpx.AsyncClient(transport=transport, **options)


async def log_in(browser: httpx.AsyncClient, token: str) -> str:
    """As a browser does; returns the token of its forms."""
    csrf = _csrf(await browser.get("/-/login"))
    answer = await browser.post("/-/login", data={"token": token, "csrf": csrf})
    assert answer.status_code == 303
    return csrf


def _csrf(answer: httpx.Response) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', answer.text)
    assert found is not None
    return found[1]


def test_the_table_of_routes_has_pages_and_actions() -> None:
    assert len(READS) > 8
    assert len(WRITES) >= 5


@pytest.mark.asyncio
@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_a_viewer_cannot_write_by_any_route(site: Application, method: str, path: str) -> None:
    for headers in ({"authorization": f"Bearer {VIEWER}"}, {}):
        async with client(site, headers=headers) as viewer:
            csrf = "" if headers else await log_in(viewer, VIEWER)
            form = await viewer.request(method, filled(path), data={"csrf": csrf})
            json = await viewer.request(method, filled(path), json={})
            assert (form.status_code, json.status_code) == (403, 403)


@pytest.mark.asyncio
@pytest.mark.parametrize(("method", "path"), [*WRITES, *READS])
async def test_a_stranger_gets_nowhere(site: Application, method: str, path: str) -> None:
    for headers in ({}, {"authorization": "Bearer of-something-else"}, {"cookie": "trueup_session=YQ.9999999999.eA"}):
        async with client(site, headers=headers) as stranger:
            answer = await stranger.request(method, filled(path))
            assert answer.status_code == 401 or answer.headers.get("location", "").startswith("/-/login")
            assert "Otto" not in answer.text


@pytest.mark.asyncio
async def test_an_operator_writes_with_a_form_of_ours_and_with_no_other(site: Application, app: App) -> None:
    async with client(site) as operator:
        csrf = await log_in(operator, OPERATOR)
        path = "/trueup/schedules/none/pause"
        assert (await operator.post(path, data={"csrf": csrf})).status_code == 303
        for wrong in ("", csrf[:-1], csrf + "x"):
            assert (await operator.post(path, data={"csrf": wrong})).status_code == 403
        async with client(site) as other:
            theirs = _csrf(await other.get("/-/login"))
        assert (await operator.post(path, data={"csrf": theirs})).status_code == 403
        elsewhere = {"origin": "http://evil.example"}
        assert (await operator.post(path, data={"csrf": csrf}, headers=elsewhere)).status_code == 403
        assert (
            await operator.post(path, data={"csrf": csrf}, headers={"sec-fetch-site": "cross-site"})
        ).status_code == 403


@pytest.mark.asyncio
async def test_other_names_of_the_server_are_refused(site: Application) -> None:
    async with client(site, base_url="http://ops.example") as named:
        assert (await named.get("/-/login")).status_code == 200
    async with client(site, base_url="http://rebound.example") as rebound:
        assert (await rebound.get("/-/login")).status_code == 421


@pytest.mark.asyncio
async def test_cookies_and_pages_are_closed_to_scripts(site: Application) -> None:
    async with client(site) as browser:
        answer = await browser.get("/-/login")
        policy = answer.headers["content-security-policy"]
        assert "'unsafe-inline'" not in policy
        assert "script-src 'self'" in policy
        csrf = _csrf(answer)
        answer = await browser.post("/-/login", data={"token": OPERATOR, "csrf": csrf})
        for cookie in answer.headers.get_list("set-cookie"):
            assert "httponly" in cookie.lower()
            assert "samesite=lax" in cookie.lower()
        page = (await browser.get("/trueup")).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", page)


@pytest.mark.asyncio
async def test_without_a_login_only_this_machine_is_answered(app: App) -> None:
    await app.open()
    pages = dashboard.asgi(app, hosts=["10.0.0.5"])
    async with client(pages) as here:
        assert (await here.get("/trueup")).status_code == 200
    async with client(pages, ("10.0.0.9", 4000), base_url="http://10.0.0.5") as elsewhere:
        assert (await elsewhere.get("/trueup")).status_code == 403


@pytest.mark.asyncio
async def test_replacing_a_token_logs_out_only_its_users_and_the_login_says_why(app: App) -> None:
    await app.open()
    new = "token-that-has-replaced-it"

    def site(*operators: str) -> Application:
        return dashboard.asgi(
            app, auth_from({"TRUEUP_DASHBOARD_TOKEN": ", ".join(operators), "TRUEUP_DASHBOARD_VIEWER_TOKEN": VIEWER})
        )

    async def asked(application: Application, cookie: str, path: str = "/trueup/jobs?state=dead") -> httpx.Response:
        async with client(application, headers={"cookie": f"trueup_session={cookie}"}) as browser:
            return await browser.get(path)

    cookies = {}
    for token in (OPERATOR, VIEWER):
        async with client(site(OPERATOR)) as browser:
            await log_in(browser, token)
            cookies[token] = browser.cookies["trueup_session"]
    for application, status in ((site(new, OPERATOR), 200), (site(new), 303)):
        assert (await asked(application, cookies[VIEWER])).status_code == 200
        answer = await asked(application, cookies[OPERATOR])
        assert answer.status_code == status
    login = answer.headers["location"]
    assert login == "/-/login?to=%2Ftrueup%2Fjobs%3Fstate%3Ddead"
    assert "is no longer accepted; log in with the one" in (await asked(site(new), cookies[OPERATOR], login)).text
    assert "no longer" not in (await asked(site(new), "", login)).text
    mark, _, signature = cookies[OPERATOR].split(".")
    assert "logged out after 12 hours" in (await asked(site(new), f"{mark}.1700000000.{signature}", login)).text
    async with client(site(new)) as browser:
        csrf = _csrf(await browser.get(login))
        for to, goes in (("/trueup/jobs?state=dead",) * 2, ("//evil.example", "/"), ("https://evil.example", "/")):
            answer = await browser.post("/-/login", data={"token": new, "csrf": csrf, "to": to})
            assert answer.headers["location"] == goes
        answer = await browser.post("/-/login", data={"token": new, "csrf": "of-another-page"})
        assert "This form has expired" in answer.text


@pytest.mark.asyncio
async def test_only_the_proxy_says_who_somebody_is(app: App) -> None:
    await app.open()
    auth = dashboard.ProxyHeader(operators={"ann"}, proxies=["10.1.0.0/16"])
    pages = dashboard.asgi(app, auth, hosts=["ops.example"])
    where = {"base_url": "http://ops.example"}
    async with client(pages, ("10.1.2.3", 4000), headers={"x-forwarded-user": "ann"}, **where) as proxy:
        assert "ann · operator" in (await proxy.get("/trueup")).text
        answer = await proxy.get("/trueup", headers={"x-forwarded-user": "bob"})
        assert "bob · viewer" in answer.text
    async with client(pages, ("10.2.2.3", 4000), headers={"x-forwarded-user": "ann"}, **where) as liar:
        assert (await liar.get("/trueup")).status_code == 401


@pytest.mark.asyncio
async def test_payloads_are_redacted_as_told_and_secrets_in_any_case(app: App) -> None:
    """Wherever they are shown: arguments, meta, the note of the progress and the result, on pages and in answers of the API."""
    await app.open()

    @app.job
    async def pay(amount: str, iban: str, password: str, *, ctx: Context = injected) -> dict[str, str]:
        await ctx.progress(40, "sends from DE00 1234")
        return {"iban": "DE00 1234", "note": "5 EUR"}

    handle = await pay.using(meta={"iban": "DE00 1234"}).enqueue("5 EUR", "DE00 1234", "hunter2 of ours")

    def redact(kind: str, payload: Any) -> Any:
        hidden = {"iban": "hidden", "note": "hidden"} if kind == "pay" else {}
        return {**payload, **{name: text for name, text in hidden.items() if name in payload}}

    def raising(kind: str, payload: Any) -> Any:
        raise KeyError(payload)

    async def seen(how: Any) -> str:
        async with client(dashboard.asgi(app, redact=how)) as here:
            places = (
                "/trueup/jobs",
                f"/trueup/jobs/{handle.id}",
                "/api/v1/trueup/jobs",
                f"/api/v1/trueup/jobs/{handle.id}",
            )
            answers = [await here.get(place) for place in places]
        assert {answer.status_code for answer in answers} == {200}
        return " ".join(answer.text for answer in answers)

    waiting = await seen(redact)
    async with app.worker():
        await handle.result(timeout="20s")
    for text in (waiting, await seen(redact)):
        assert "5 EUR" in text
        assert "DE00" not in text
        assert "hunter2" not in text
    assert "40" in await seen(redact)
    text = await seen(raising)
    assert "hidden: redact raised KeyError" in text
    assert "DE00" not in text
    assert "5 EUR" not in text


@pytest.mark.asyncio
async def test_it_works_below_any_path_of_another_application(app: App) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    await app.open()
    outer = Starlette(routes=[Mount("/admin/jobs", dashboard.asgi(app, TOKENS))])
    async with client(outer) as browser:  # type: ignore[arg-type]
        answer = await browser.get("/admin/jobs/")
        assert answer.headers["location"] == "/admin/jobs/-/login"
        csrf = _csrf(await browser.get("/admin/jobs/-/login"))
        await browser.post("/admin/jobs/-/login", data={"token": OPERATOR, "csrf": csrf})
        page = await browser.get("/admin/jobs/trueup")
        assert page.status_code == 200
        links = re.findall(r'(?:href|action|src)="(/[^"]*)"', page.text)
        assert links
        assert all(link.startswith("/admin/jobs/") for link in links)


@pytest.mark.asyncio
async def test_a_name_with_a_slash_has_its_page_and_its_actions(app: App) -> None:
    """Below a path of another application, and for programs that write it as %2F."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    @app.job(name="mail/send", queue="out/slow")
    async def send() -> None: ...

    await app.open()
    await send.enqueue()
    await app.schedules.create("shop/nightly", Every("1h"), send.call())
    outer = Starlette(routes=[Mount("/admin/jobs", dashboard.asgi(app))])
    async with client(outer) as here:  # type: ignore[arg-type]
        for page, pressed in (("queues", 2), ("schedules", 2)):
            text = (await here.get(f"/admin/jobs/trueup/{page}")).text
            for link in re.findall(r'href="(/[^"]*~[^"]*)"', text):
                assert (await here.get(link)).status_code == 200
            actions = re.findall(r'action="(/[^"]*~[^"]*)"', text)
            assert len(actions) == pressed
            for action in actions:
                assert (
                    await here.post(action, data={"csrf": _csrf(await here.get("/admin/jobs/trueup/queues"))})
                ).status_code == 303
        assert {each.name for each in await app.jobs.paused()} == {"mail/send", "out/slow"}
        api = "/admin/jobs/api/v1/trueup"
        assert (await here.get(f"{api}/schedules/shop%2Fnightly")).json()["state"] == "paused"
        assert (await here.post(f"{api}/queues/out%2fslow/resume", json={})).json() == {
            "done": "queue out/slow: resumed"
        }


@pytest.mark.asyncio
async def test_a_database_that_is_away_is_a_sentence_and_no_traceback() -> None:
    gone = App("postgresql://nobody@127.0.0.1:1/none", connect_timeout="1s")
    async with client(dashboard.asgi({"shop": gone})) as here:
        answer = await here.get("/shop")
        assert answer.status_code == 503
        assert "The database is unavailable" in answer.text
        assert "Traceback" not in answer.text


@pytest.mark.asyncio
async def test_a_database_that_was_never_migrated_is_explained_on_every_page_and_answer(
    empty_database_url: str,
) -> None:
    app = App(empty_database_url)
    async with client(dashboard.asgi({"shop": app})) as here:
        for page in PAGES:
            answer = await here.get(
                f"/shop{page.path}".replace("{id}", "1").replace("{name}", "x"), params={"key": "1"}
            )
            if page.path not in ("", "/alerts"):  # which say it as a finding, or list the checks there are
                assert (answer.status_code, "The schema does not fit this release" in answer.text) == (503, True), page
            assert "trueup migrate" in answer.text, page
        for each in ENDPOINTS:
            if each.method == "GET":
                path = each.path.replace("{id}", "1").replace("{name}", "x")
                answer = await here.get(f"/api/v1/shop{path}")
                assert answer.status_code in (200, 422, 503), (path, answer.text)
                if answer.status_code == 503:
                    assert "trueup migrate" in answer.text
    await app.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "ops.example"])
def test_the_command_refuses_to_be_reachable_without_a_login(host: str) -> None:
    with pytest.raises(ConfigError, match="TRUEUP_DASHBOARD_TOKEN"):
        check_bind(host, auth_from({}))
    check_bind(host, auth_from({"TRUEUP_DASHBOARD_TOKEN": OPERATOR}))
    check_bind("127.0.0.1", auth_from({}))


@pytest.mark.parametrize(
    ("tokens", "said"), [({}, "no token"), ({"short": "viewer"}, "16 or more"), ({OPERATOR: "admin"}, "role")]
)
def test_tokens_that_protect_nothing_are_refused(tokens: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        dashboard.Tokens(dict(tokens))


def test_one_name_in_place_of_a_list_of_names_is_refused() -> None:
    """Its characters would be the names: a person called "a" would be an operator."""
    for given in ({"operators": "ann"}, {"proxies": "10.1.2.3"}):
        with pytest.raises(ConfigError, match=r"^(operators|proxies)='.+': give a list: \['.+'\]$"):
            dashboard.ProxyHeader(**given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^hosts='ops.example': give a list: \['ops.example'\]$"):
        dashboard.asgi(App("postgresql://a"), hosts="ops.example")


def test_two_apps_need_two_names() -> None:
    one, other = App("postgresql://a"), App("postgresql://b")
    with pytest.raises(ConfigError, match="name them"):
        dashboard.asgi([one, other])
    dashboard.asgi({"one": one, "other": other})
    with pytest.raises(ConfigError, match="cannot be part of a URL"):
        dashboard.asgi({"a/b": one})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"TRUEUP_DASHBOARD_TOKEN": ""}, "TRUEUP_DASHBOARD_TOKEN is empty"),
        (
            {"TRUEUP_DASHBOARD_TOKEN": OPERATOR, "TRUEUP_DASHBOARD_VIEWER_TOKEN": ""},
            "TRUEUP_DASHBOARD_VIEWER_TOKEN is empty",
        ),
        ({"TRUEUP_DASHBOARD_TOKEN": f"{OPERATOR},"}, "TRUEUP_DASHBOARD_TOKEN is empty, or one of its tokens is"),
        ({"TRUEUP_DASHBOARD_TOKEN": f"{OPERATOR},{VIEWER}", "TRUEUP_DASHBOARD_VIEWER_TOKEN": VIEWER}, "are the same"),
        ({"TRUEUP_DASHBOARD_VIEWER_TOKEN": "short"}, "TRUEUP_DASHBOARD_VIEWER_TOKEN: a token needs 16 or more"),
        ({"TRUEUP_DASHBOARD_TOKEN": OPERATOR, "TRUEUP_DASHBOARD_VIEWER_TOKEN": OPERATOR}, "are the same"),
    ],
)
def test_a_token_that_lets_in_too_many_is_refused_by_its_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        auth_from(given)
