"""The dashboard in a real Chromium: every page in light, dark and on a phone, and everything that people do there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import orjson
import psycopg
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, ViewportSize, expect

from tests.support.chromium import launched
from tests.support.database import TestServer
from tests.web.dashboard.filled import fill, shop
from tests.web.dashboard.serving import served
from trueup.web import dashboard

pytestmark = pytest.mark.slow

RULES = (Path(__file__).parent / "rules.js").read_text()
DESKTOP = ViewportSize(width=1280, height=860)
PATIENCE = 70_000  # milliseconds: on a busy machine a live page keeps answers for as long as LIVE_FOR
expect.set_options(timeout=PATIENCE)
PAGES = (
    "",
    "/jobs?state=dead",
    "/jobs/{dead}",
    "/reconcilers",
    "/reconcilers/ship_paid_orders",
    "/reconcilers/ship_paid_orders/row?key=70311",
    "/schedules",
    "/schedules/refresh_rates",
    "/fleet",
    "/recovery",
    "/queues",
    "/alerts",
    "/audit",
)
EVIL = '<img src=x onerror="window.injected=1"><script>window.injected=1</script>\'"</pre>'


def broken_rules(page: Page) -> list[str]:
    page.wait_for_function("document.hasFocus()")  # until then no element of the page shows a focus
    return page.evaluate(RULES)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests here. It ends with the module: Playwright's event loop and those of other tests do not mix."""
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def url(server: TestServer) -> Iterator[str]:
    with server.database() as url:
        fill(url, jobs=800)
        yield url


@pytest.fixture(scope="module")
def address(url: str) -> Iterator[str]:
    with served(dashboard.asgi({"shop": shop(url)}, closes=True, undo_for=0.5)) as address:
        yield f"{address}/shop"


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """One for all tests here: a new one is a new process, in which everything is loaded and compiled anew."""
    context = browser.new_context(viewport=DESKTOP, color_scheme="light")
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """A page on which nothing may go wrong: no error on the console, no failed request, nothing from elsewhere."""
    page, wrong = tab, list[str]()
    page.set_viewport_size(DESKTOP)
    page.emulate_media(color_scheme="light")

    def noted(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def asked(request: Request) -> None:
        if not request.url.startswith("http://127.0.0.1:"):
            wrong.append(f"asked {request.url}")

    def failed(error: Error) -> None:
        wrong.append(str(error))

    page.on("console", noted)
    page.on("pageerror", failed)
    page.on("request", asked)
    yield page
    page.evaluate("localStorage.clear()")
    page.context.clear_cookies()
    page.remove_listener("console", noted)
    page.remove_listener("pageerror", failed)
    page.remove_listener("request", asked)
    assert wrong == []


def execute(url: str, statement: str, *params: object) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), params)
        return cursor.fetchall() if cursor.description else []


def one_dead(url: str, place: int = 0) -> int:
    rows = execute(url, "select id from trueup.history where state = 'dead' order by id desc")
    return int(str(rows[place][0]))


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_readable_in_light_dark_and_on_a_phone(page: Page, address: str, url: str, path: str) -> None:
    page.goto(address + path.format(dead=one_dead(url)))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert broken_rules(page) == [], scheme
    page.set_viewport_size({"width": 420, "height": 860})
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    assert broken_rules(page) == [], "phone"


def test_a_page_follows_what_happens_and_rests_while_nobody_sees_it(page: Page, address: str, url: str) -> None:
    page.goto(f"{address}/jobs?kind=sync_inventory&state=queued")
    expect(page.locator("#live")).to_have_attribute("data-is", "live")
    concerns = int(page.locator("#badge").inner_text().split()[0])
    expect(page).to_have_title(f"({concerns}) Jobs · shop · trueup")
    refusal = "insert into trueup.schedule_refusals select name, version, 'too long', 1, now(), now() from trueup.schedules where name = 'refresh_rates'"
    execute(url, refusal)
    expect(page).to_have_title(f"({concerns + 1}) Jobs · shop · trueup", timeout=PATIENCE)
    expect(page.locator("#badge")).to_have_text(f"{concerns + 1} need attention")
    execute(url, "delete from trueup.schedule_refusals")
    insert = (
        "insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts)"
        " values ('sync_inventory', 'default', 'default', now(), now(), '{}', 3) returning id"
    )
    ((first,),) = execute(url, insert)
    expect(page.get_by_text(f"#{first}")).to_be_visible(timeout=PATIENCE)
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    expect(page.locator("#live")).to_have_attribute("data-is", "paused")
    ((second,),) = execute(url, insert)
    page.wait_for_timeout(2500)  # longer than a look takes: nothing may come
    expect(page.get_by_text(f"#{second}")).to_have_count(0)
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_text(f"#{second}")).to_be_visible(timeout=PATIENCE)


def test_what_was_typed_stays_while_the_page_changes_around_it(page: Page, address: str, url: str) -> None:
    page.goto(f"{address}/jobs?state=queued")
    page.get_by_label("Error contains").fill("half a wor")
    ((job,),) = execute(
        url,
        "insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts)"
        " values ('export_report', 'default', 'default', now(), now(), '{}', 3) returning id",
    )
    expect(page.get_by_text(f"#{job}")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_label("Error contains")).to_have_value("half a wor")
    expect(page.get_by_label("Error contains")).to_be_focused()


def test_a_list_that_changes_takes_neither_focus_nor_selection_from_what_stays(page: Page, address: str) -> None:
    """Whatever leaves, comes or changes its place around it: rows with and without a key, and blanks between them."""
    page.goto(f"{address}/queues")
    lost = page.evaluate(
        """() => {
          const stopped = rest(), names = ["a", "b", "c", "d", "e"], lost = [];
          const written = (list) => list.map((name) => `\\n <li ${name === "?" ? "" : `data-key=${name}`}><button>${name}</button></li>`).join("") + "\\n";
          const orders = (left) => left.length ? left.flatMap((name) => orders(left.filter((each) => each !== name)).map((rest) => [name, ...rest])) : [[]];
          const some = Array.from({ length: 32 }, (_, mask) => names.filter((_, place) => mask & (1 << place)));
          for (const before of some.filter((list) => list.length > 2).flatMap((list) => [list, ["?", ...list], [...list.slice(0, 2), "?", ...list.slice(2)]])) {
            for (const after of [...some, ...orders(names.slice(0, 4)), ...some.map((list) => ["?", ...list])]) {
              for (const name of before.filter((each) => after.includes(each) && each !== "?")) {
                main.innerHTML = `<ul>${written(before)}</ul>`;
                const to = document.createElement("ul");
                to.innerHTML = written(after);
                const button = main.querySelector(`[data-key=${name}] button`);
                button.focus();
                getSelection().selectAllChildren(button);
                morphChildren(main.firstChild, to);
                const is = [...main.querySelectorAll("button")].map((each) => each.textContent);
                if (is.join() !== after.join() || document.activeElement !== button || String(getSelection()) !== name)
                  lost.push(`${before} -> ${after}: ${name} (${is})`);
              }
            }
          }
          return lost;
        }"""
    )
    assert lost == []


@pytest.mark.parametrize("comes", [True, False], ids=["comes", "goes"])
def test_what_was_typed_stays_when_a_section_comes_or_goes_above_it(
    page: Page, address: str, url: str, comes: bool
) -> None:
    names = ["ship_paid_orders", "another"]
    put = "update trueup.sweeps set reconciler = %s where reconciler in ('ship_paid_orders', 'another')"
    execute(url, put, names[comes])
    page.goto(f"{address}/reconcilers/ship_paid_orders")
    outcomes = page.locator("#outcomes")
    expect(outcomes).to_have_count(0 if comes else 1)
    expect(page.locator("#live")).to_have_attribute("data-is", "live")
    page.get_by_label("Rows", exact=True).fill("7")
    execute(url, put, names[not comes])
    expect(outcomes).to_have_count(1 if comes else 0)
    expect(page.get_by_label("Rows", exact=True)).to_have_value("7")
    expect(page.get_by_label("Rows", exact=True)).to_be_focused()
    execute(url, put, names[0])


def test_a_dead_job_is_revived_and_a_queued_one_cancelled(page: Page, address: str, url: str) -> None:
    dead = one_dead(url, -1)
    page.goto(f"{address}/jobs/{dead}")
    page.get_by_role("button", name="Revive").click()
    expect(page.get_by_role("status").filter(has_text="back in its queue")).to_be_visible()
    assert execute(url, "select state from trueup.jobs where id = %s", dead) == [("queued",)]
    page.locator("summary", has_text="Cancel").click()
    page.get_by_role("button", name=f"Cancel job {dead}").click()
    expect(page.get_by_role("status").filter(has_text="cancelled")).to_be_visible()
    assert execute(url, "select state from trueup.history where id = %s and state = 'cancelled'", dead)


def test_everything_that_matches_is_discarded_with_progress(page: Page, address: str, url: str) -> None:
    matching = "select count(*) from trueup.history where state = 'dead' and kind = 'send_receipt'"
    ((number,),) = execute(url, matching)
    assert number
    others = execute(url, "select count(*) from trueup.history where state = 'dead' and kind <> 'send_receipt'")
    page.goto(f"{address}/jobs?state=dead&kind=send_receipt")
    page.locator("summary", has_text="Discard all").click()
    page.get_by_role("button", name="Discard everything that matches").click()
    line = page.locator(".run-line", has_text="Discard")
    expect(line.locator(".state")).to_have_text("●done")
    expect(line).to_contain_text(f"{number} of {number} jobs")
    assert execute(url, matching) == [(0,)]
    assert execute(url, "select count(*) from trueup.history where state = 'dead' and kind <> 'send_receipt'") == others


def test_an_action_on_many_jobs_is_undone_and_several_apps_are_kept_apart(
    page: Page, address: str, url: str, server: TestServer
) -> None:
    asked = "select count(*) from trueup.history where state = 'dead'"
    before = execute(url, asked)
    with (
        server.database() as other,
        served(dashboard.asgi({"shop": shop(url), "mail": shop(other)}, closes=True, undo_for=600)) as two,
    ):
        page.goto(f"{two}/shop/jobs?state=dead")
        page.locator("summary", has_text="Discard all").click()
        expect(page.locator("details.ask[open] .panel")).to_contain_text("after 600 seconds and can be undone")
        page.get_by_role("button", name="Discard everything that matches").click()
        line = page.locator(".run-line", has_text="Discard")
        expect(line.locator(".state")).to_have_text("○waiting")
        expect(line).to_contain_text(f"0 of {before[0][0]} jobs")
        page.get_by_role("link", name="mail", exact=True).click()
        expect(page.get_by_text("No worker is alive")).to_be_visible()
        page.goto(f"{two}/mail/jobs?state=dead")
        expect(page.get_by_text("No job matches.")).to_be_visible()
        expect(line).to_have_count(0)
        page.goto(f"{two}/shop/jobs?state=dead")
        line.get_by_role("button", name="Undo").click()
        expect(
            page.get_by_role("status").filter(has_text="Undone before it began: nothing was changed.")
        ).to_be_visible()
        expect(line.locator(".state")).to_have_text("■undone")
        page.goto(address)  # a stream would keep the server
    assert execute(url, asked) == before


def test_rows_are_released_from_quarantine_and_looked_at_by_a_dry_run(page: Page, address: str, url: str) -> None:
    page.goto(f"{address}/reconcilers/ship_paid_orders")
    page.locator("tr", has_text="70324").get_by_role("button", name="Release").click()
    expect(page.get_by_role("status").filter(has_text="Row 70324 is released")).to_be_visible()
    assert execute(url, "select state from trueup.rows where key = '70324'") == [("resting",)]

    page.get_by_role("spinbutton", name="Rows").fill("2")
    page.get_by_label("Handler").select_option("yes")
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("status").filter(has_text="its writes were rolled back")).to_be_visible()
    expect(page.locator("section", has=page.locator("#dry-run")).locator("tbody tr")).to_have_count(2)
    assert broken_rules(page) == []


def test_a_schedule_is_paused_triggered_and_resumed(page: Page, address: str, url: str) -> None:
    page.goto(f"{address}/schedules/close_carts")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status").filter(has_text="is paused")).to_be_visible()
    assert execute(url, "select state, note from trueup.schedules where name = 'close_carts'") == [
        ("paused", "paused by local on the dashboard")
    ]
    page.locator("summary", has_text="Trigger").click()
    page.get_by_role("button", name="Fire once now").click()
    expect(page.get_by_role("status").filter(has_text="fired once")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status").filter(has_text="is resumed")).to_be_visible()
    assert execute(url, "select state from trueup.schedules where name = 'close_carts'") == [("active",)]


def test_a_backfill_is_previewed_started_and_watched(page: Page, address: str, url: str) -> None:
    # Of those that are there now: a backfill also decides about what falls due meanwhile.
    now = "'" + str(execute(url, "select now()")[0][0]) + "'"
    skipped = (
        f"select count(*) from trueup.ticks where schedule = 'refresh_rates' and outcome = 'skipped' and due_at < {now}"
    )
    ((number,),) = execute(url, skipped)
    assert isinstance(number, int)
    assert number > 5
    page.goto(f"{address}/schedules/refresh_rates")
    card = page.get_by_role("region", name="Backfill")
    card.get_by_label("At most").fill("1/60s")  # the first at once, and then time enough to stop it
    card.get_by_role("button", name="Preview").click()  # the form proposes the range of the skipped ticks
    expect(card).to_contain_text(f"{number} of {number} ticks in this range were not fired")
    card.locator("summary", has_text="Backfill").click()
    card.get_by_role("button", name=f"Fire {number} ticks").click()
    expect(page.get_by_role("status").filter(has_text="The backfill of refresh_rates begins")).to_be_visible()
    run = card.locator(".run-line").first
    bar = run.locator("progress")
    expect(bar).to_have_attribute("max", str(number))
    # It moves without a reload.
    page.wait_for_function("Number(document.querySelector('.run-line progress')?.value) > 0")
    run.get_by_role("button", name="Stop").click()
    expect(run.locator(".state")).to_have_text("◆stopped")
    ((left,),) = execute(url, skipped)
    assert isinstance(left, int)
    assert 0 < left < number
    page.goto(f"{address}/schedules/refresh_rates")
    card.get_by_role("button", name="Preview").click()
    card.locator("summary", has_text="Backfill").click()
    card.get_by_role("button", name=f"Fire {left} tick").click()
    expect(run.locator(".state")).to_have_text("●done")
    expect(run).to_contain_text(f"{left} of ")
    assert execute(url, skipped) == [(0,)]
    page.goto(f"{address}/audit?action=backfill")
    expect(page.locator("tbody tr")).to_have_count(2)


def test_a_backfill_that_cannot_be_says_why(page: Page, address: str, url: str) -> None:
    for query, why in (
        ("start=2026-01-02T00:00&end=2026-01-01T00:00", "ends before it starts"),
        ("start=soon&end=2026-01-01T00:00", "is not a time"),
        ("start=2026-01-01T00:00&end=2026-01-01T01:00&rate=fast", "is not a rate"),
    ):
        page.goto(f"{address}/schedules/refresh_rates?{query}")
        expect(page.get_by_role("region", name="Backfill").locator(".error")).to_contain_text(why)


def test_the_bar_of_a_running_job_moves(page: Page, address: str, url: str) -> None:
    ((job,),) = execute(url, "select min(id) from trueup.jobs where state = 'running'")
    put = "update trueup.jobs set progress = jsonb_build_object('percent', %s::int, 'note', '', 'at', now()) where id = %s"
    execute(url, put, 10, job)
    page.goto(f"{address}/jobs/{job}")
    expect(page.locator("progress")).to_have_js_property("value", 10)
    execute(url, put, 60, job)
    expect(page.locator("progress")).to_have_js_property("value", 60)


def test_filters_combine_are_suggested_and_are_all_in_the_address(page: Page, address: str, url: str) -> None:
    asked = (
        "select id, args ->> 'order' from trueup.history where state = 'dead' and kind = 'charge_card' order by id desc"
    )
    (job, order), *others = execute(url, asked)
    page.goto(f"{address}/jobs?state=dead")
    for name, some in (
        ("kinds", "charge_card"),
        ("queues", "billing"),
        ("arguments", "card_token="),
        ("errors", "CardDeclined"),
        ("ages", "24h"),
    ):
        offered = page.locator(f"datalist#{name} option").evaluate_all("all => all.map(each => each.value)")
        assert some in offered, (name, offered)
    rows = page.locator("tbody tr")
    page.get_by_label("Kind").fill("charge_card")
    page.get_by_label("Argument").fill("amount=49.90 EUR")
    page.get_by_label("Error contains").fill("insufficient")
    page.get_by_label("Attempts, at least").fill("1")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(min(50, 1 + len(others)))
    page.get_by_label("And argument").fill(f"order={order}")  # beside the first one, which stays
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text(f"#{job}")
    shared = page.url
    page.goto(f"{address}/jobs")
    page.goto(shared)
    expect(rows).to_have_count(1)
    filled = page.locator("input[name=arg]").evaluate_all("all => all.map(each => each.value)")
    assert filled == ["amount=49.90 EUR", f"order={order}", ""]
    page.get_by_label("Older than").fill("300d")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No job matches.")).to_be_visible()


def test_a_queue_and_a_kind_are_paused_and_resumed(page: Page, address: str, url: str) -> None:
    for region, what, name in (("Queues", "queue", "media"), ("Kinds", "kind", "charge_card")):
        page.goto(f"{address}/queues")
        row = page.get_by_role("region", name=region).locator("tr", has=page.get_by_role("link", name=name, exact=True))
        row.locator("summary", has_text="Pause").click()
        row.get_by_role("button", name=f"Pause {what} {name}").click()
        expect(page.get_by_role("status").filter(has_text=f"{what.capitalize()} {name} is paused")).to_be_visible()
        expect(row.locator(".state")).to_have_text("◆paused")
        assert execute(url, "select what, name, paused_by from trueup.pauses") == [(what, name, "local")]
        row.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("status").filter(has_text=f"{what.capitalize()} {name} is resumed")).to_be_visible()
        assert execute(url, "select count(*) from trueup.pauses") == [(0,)]


def test_the_fleet_names_what_blocked_an_event_loop(page: Page, address: str, url: str) -> None:
    page.goto(f"{address}/fleet")
    warning = page.locator("tr", has_text="event loop was blocked")
    expect(warning).to_have_count(1)
    expect(warning).to_contain_text(re.compile(r"blocked 3 times, last by resize_image for 2\.1s or longer, \d+m ago"))


def test_alerts_show_what_fires_and_since_when(page: Page, address: str, url: str) -> None:
    execute(url, "insert into trueup.alerts values ('sweeps', 'sent', now() - interval '20 min', 'error', 'x')")
    page.goto(f"{address}/alerts")
    first = page.locator("tbody tr").first
    expect(first.locator(".state")).to_have_text("▲firing")
    expect(first).to_contain_text("sweeps")
    expect(first).to_contain_text("20m ago")
    expect(first).to_contain_text("sent")
    first.get_by_role("link", name="Show the error").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Reconcilers")
    execute(url, "delete from trueup.alerts")


def test_what_was_sent_along_with_a_job_is_shown_without_secrets(page: Page, address: str, url: str) -> None:
    job = one_dead(url, 5)
    meta = orjson.dumps({"traceparent": "00-4bf92f35-01", "api_key": "hunter2"}).decode()
    execute(url, "update trueup.history set meta = %s::jsonb where id = %s", meta, job)
    page.goto(f"{address}/jobs/{job}")
    expect(page.get_by_role("region", name="Metadata")).to_contain_text("00-4bf92f35-01")
    assert "hunter2" not in page.content()


def test_what_people_do_is_on_the_audit_page(page: Page, address: str, url: str) -> None:
    job = one_dead(url, 3)
    page.goto(f"{address}/jobs/{job}")
    page.get_by_role("button", name="Revive").click()
    expect(page.get_by_role("region", name="Operator actions").locator("tr").first).to_contain_text("revive")
    page.goto(f"{address}/audit")
    first = page.locator("tbody tr").first
    expect(first).to_contain_text("local")
    expect(first.get_by_role("link")).to_have_text(f"job {job}")
    page.get_by_label("From").select_option("cli")
    page.get_by_label("Action", exact=True).fill("pause")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("new image service is rolled out")
    page.get_by_role("link", name="Clear").click()
    expect(page).to_have_url(f"{address}/audit")
    ((actor, via, action, keys),) = execute(
        url, "select actor, via, action, keys from trueup.actions order by id desc limit 1"
    )
    assert (actor, via, action, keys) == ("local", "web", "revive", [str(job)])


def test_scripts_in_the_data_are_shown_as_text(page: Page, address: str, url: str) -> None:
    error = orjson.dumps(
        [{"attempt": 1, "at": "2026-01-01T00:00:00Z", "type": EVIL, "message": EVIL, "traceback": EVIL}]
    )
    execute(
        url,
        "insert into trueup.jobs (id, kind, queue, lane, run_at, rank, args, max_attempts, errors, attempt, unique_key)"
        " values (960000, %s, %s, 'default', now(), now(), %s::jsonb, 3, %s::jsonb, 1, %s)",
        *(EVIL, EVIL, orjson.dumps({EVIL: EVIL}).decode(), error.decode(), EVIL),
    )
    execute(url, "update trueup.reconcilers set last_error = %s, note = %s where name = 'mirror_stock'", EVIL, EVIL)
    execute(url, "update trueup.workers set release = %s where host = 'worker-c'", EVIL)
    action = "insert into trueup.actions (at, actor, via, host, action, what, name, count, keys, detail)"
    execute(url, f"{action} values (now(), $1, $1, $1, $1, $1, $1, 9, array[$1], $1)".replace("$1", "%s"), *[EVIL] * 8)
    for path in (
        *("", "/jobs?state=queued", "/jobs/960000", "/reconcilers", "/reconcilers/mirror_stock", "/fleet"),
        "/audit",
    ):
        page.goto(address + path)
        expect(page.get_by_text("window.injected").first).to_be_attached()
    page.goto(f"{address}/jobs?error={EVIL}&kind={EVIL}")
    expect(page.get_by_label("Error contains")).to_have_value(EVIL)
    assert page.evaluate("window.injected") is None
    execute(url, "delete from trueup.jobs where id = 960000")


def test_everything_can_be_done_with_the_keyboard_alone(page: Page, address: str, url: str) -> None:
    page.goto(address)
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the page")
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    expect(page.locator("#live")).to_have_attribute("data-is", "live")  # the script has run
    page.keyboard.press("/")
    expect(page.get_by_label("Kind")).to_be_focused()
    page.keyboard.type("resize_image")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{address}/jobs?kind=resize_image&queue=&arg=&error=&attempts=&older=")
    page.goto(f"{address}/jobs/{one_dead(url)}")
    page.locator("summary", has_text="Discard").focus()
    page.keyboard.press("Enter")
    panel = page.get_by_role("button", name="Discard job")
    expect(panel).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="is discarded")).to_be_visible()


@pytest.mark.parametrize("path", ["/jobs?state=dead&kind=charge_card", "/audit"])
def test_on_a_phone_the_list_comes_before_the_filters_open(page: Page, address: str, path: str) -> None:
    page.set_viewport_size({"width": 420, "height": 860})
    page.goto(address + path)
    expect(page.locator("table.cards tbody tr").first).to_be_in_viewport()
    first = page.locator(".filters input:not([type=hidden])").first
    expect(first).not_to_be_visible()
    page.locator(".filtering > summary").click()
    expect(first).to_be_visible()
    page.goto(address + path)
    expect(page.locator("#live")).to_have_attribute("data-is", "live")
    page.keyboard.press("/")
    expect(first).to_be_focused()


def test_the_current_page_is_in_view_on_a_phone(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 420, "height": 860})
    page.goto(f"{address}/audit")
    expect(page.locator("nav a[aria-current=page]")).to_be_in_viewport()


def test_a_page_whose_session_has_ended_asks_for_the_token_and_comes_back(browser: Browser, url: str) -> None:
    token = "token-of-an-operator"
    with served(dashboard.asgi({"shop": shop(url)}, dashboard.Tokens({token: "operator"}), closes=True)) as address:
        page = browser.new_page()
        page.goto(f"{address}/shop/fleet")
        for _ in range(2):
            page.get_by_label("Token").fill(token)
            page.keyboard.press("Enter")
            expect(page.locator("#live")).to_have_attribute("data-is", "live")
            expect(page).to_have_url(f"{address}/shop/fleet")
            page.context.clear_cookies(name="trueup_session")
            page.evaluate("""() => {
                window.setTimeout = (call) => Promise.resolve().then(call);
                const seen = (hidden) => {
                    Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
                    document.dispatchEvent(new Event('visibilitychange'));
                };
                seen(true);
                seen(false);
            }""")
            expect(page.get_by_label("Token")).to_be_visible()
        page.close()


def test_the_theme_is_chosen_once_and_kept(page: Page, address: str) -> None:
    page.goto(address)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Use the dark theme").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.goto(f"{address}/fleet")
    assert page.evaluate(ground) == dark


def test_a_viewer_logs_in_and_finds_nothing_to_press(browser: Browser, url: str) -> None:
    auth = dashboard.Tokens({"viewer-token-of-ours": ("Vera", "viewer")})
    with served(dashboard.asgi({"shop": shop(url)}, auth, closes=True)) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.get_by_label("Token").fill("not the right token")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("Unknown token")
        page.get_by_label("Token").fill("viewer-token-of-ours")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("Vera · viewer")).to_be_visible()
        for path in (
            "/jobs?state=dead",
            f"/jobs/{one_dead(url)}",
            "/schedules",
            "/queues",
            "/reconcilers/ship_paid_orders",
        ):
            page.goto(f"{address}/shop{path}")
            labels = page.locator("main form[method=post] button").count()
            assert labels == 0, path
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.context.clear_cookies()
        page.close()


LONG_NAME = "synchronise_the_inventory_of_every_warehouse_with_the_partner_system_and_notify.subscribers_of_all_regions"
LONG_TEXT = "x" * 400 + " no answer from https://warehouse.example/api/v2/items within 30 s;" * 25
LENGTHENED = (
    "update trueup.jobs set kind = %(name)s, queue = %(name)s, lane = %(name)s where kind = 'send_receipt'",
    "update trueup.history set kind = %(name)s, queue = %(name)s, args = jsonb_build_object(%(name)s::text, %(text)s::text) where state = 'dead'",
    "update trueup.history set reason = %(text)s, errors = jsonb_build_array(jsonb_build_object('attempt', 1, 'type', %(name)s::text,"
    " 'message', %(text)s::text, 'traceback', %(text)s::text, 'host', %(name)s::text)) where state = 'dead'",
    "update trueup.rows set reason = %(text)s, errors = jsonb_build_array(jsonb_build_object('type', %(name)s::text, 'message', %(text)s::text))",
    "update trueup.workers set host = %(name)s, release = %(name)s, queues = array_append(queues, %(name)s::text)",
    "update trueup.leases set label = %(name)s",
    "update trueup.schedules set name = %(name)s, note = %(text)s where name = 'daily_digest'",
    "update trueup.reconcilers set last_error = %(text)s, note = %(text)s where name = 'mirror_stock'",
    "update trueup.reconcilers set name = %(name)s where name = 'expire_carts'",
    "update trueup.actions set actor = %(name)s, host = %(name)s, name = %(name)s, detail = %(text)s",
    "insert into trueup.pauses (what, name, paused_at, paused_by, reason) values ('queue', %(name)s, now(), %(name)s, %(text)s)",
)


def test_long_names_and_texts_widen_no_page(page: Page, address: str, server: TestServer) -> None:
    with server.database() as url, served(dashboard.asgi({"shop": shop(url)}, closes=True)) as lengthened:
        fill(url, jobs=200)
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in LENGTHENED:
                connection.execute(statement.encode(), {"name": LONG_NAME, "text": LONG_TEXT})
        wide = []
        for path in (*PAGES, "/jobs"):
            page.goto(f"{lengthened}/shop{path.format(dead=one_dead(url))}")
            for width in (1280, 390):
                page.set_viewport_size(ViewportSize(width=width, height=860))
                if (taken := page.evaluate("document.documentElement.scrollWidth")) > width:
                    wide.append((path, width, taken))
        assert wide == []
        page.goto(address)  # a stream would keep the server
