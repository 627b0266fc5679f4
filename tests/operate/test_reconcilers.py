from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from trueup import Again, App, Context, GiveUp, Retry, Row, Stay, To
from trueup.errors import ConfigError, NotFound
from trueup.events import Event, ReconcilerPaused, ReconcilerResumed, RowsFreed
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

TABLES = """
create table papers (id int primary key, state text not null, changed_at timestamptz not null default now(), size int);
create table pairs (a text, b int, state text not null, primary key (a, b));
insert into papers select n, 'uploading', now() - interval '20 min' from generate_series(1, 10) as n;
insert into papers select n, 'trial', now() - interval '20 d' from generate_series(101, 105) as n;
insert into pairs values ('ä"x', 1, 'new'), ('b', 2, 'new');
"""

Query = Callable[..., Any]


@pytest_asyncio.fixture
async def shop(database_url: str) -> AsyncIterator[App]:
    """Reconcilers that fail for 5 and give up on 7, a move, a deletion that is too large, one for keys of two columns, a scan."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)
    app = App(database_url)
    papers = app.table("papers", key="id", state="state", changed_at="changed_at")
    pairs = app.table("pairs", key=("a", "b"), state="state")

    @papers.reconcile("uploading", stale_for="10m", every="5m", retry=Retry(max_attempts=3, first="1h", cap="1h"))
    async def recover(paper: Row) -> To | None:
        if paper["id"] == 5:
            raise ConnectionError("refused")
        if paper["id"] == 7:
            raise GiveUp("no such object")
        return To("stored", size=3) if paper["id"] != 9 else None

    papers.move("trial", to="expired", stale_for="14d")
    papers.delete("expired", "trial", stale_for="1h", max_fraction=0.1, name="too-much")

    @pairs.reconcile("new")
    async def pair(row: Row) -> None:
        raise GiveUp("never")

    await app.open()
    yield app
    await app.close()


@pytest.fixture
def query(database_url: str) -> Query:
    def query(text: str, *params: object) -> Any:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), params)
            return cursor.fetchall() if cursor.description else None

    return query


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def heard(app: App, *classes: type[Event]) -> list[Event]:
    events: list[Event] = []
    app.events.subscribe(events.append, *classes)
    return events


async def by_name(app: App) -> dict[str, dict[str, Any]]:
    return {record["name"]: record for record in await app.reconcilers.list()}


# -- running ----------------------------------------------------------------------------------------------------------


async def test_a_run_sees_every_row_through_once(shop: App, query: Query) -> None:
    run = await shop.reconcilers.run("recover")
    assert {name: count for name, count in run.outcomes.items() if count} == {
        "claimed": 10,
        "changed": 7,
        "unchanged": 1,
        "retry": 1,
        "quarantined": 1,
    }
    assert not run.ok
    assert query("select count(*) from papers where state = 'stored' and size = 3") == [(7,)]
    assert query("select key, state from trueup.rows order by key") == [
        ("5", "resting"),
        ("7", "quarantined"),
        ("9", "resting"),
    ]
    again = await shop.reconcilers.run("recover")
    assert (again.ok, again.outcomes["claimed"]) == (True, 0)


async def test_one_without_an_interval_is_swept_only_when_asked_for(shop: App, query: Query) -> None:
    papers = shop.table("papers", key="id", state="state", changed_at="changed_at")

    @papers.reconcile("parked", stale_for="10m", every=None, run_at_start=True)
    async def by_hand(paper: Row) -> To:
        return To("seen")

    @papers.reconcile("seen", every="1h", run_at_start=True)
    async def by_itself(paper: Row) -> To:
        return To("swept")

    papers.delete("swept", stale_for="0s", every=None, run_at_start=True, name="purge-by-hand")
    query("update papers set state = 'parked' where state = 'trial'")
    query("insert into papers values (200, 'seen')")
    async with shop.worker():
        await until(lambda: query("select 1 from papers where state = 'swept'"))
    assert query("select count(*)::int from papers where state = 'parked'") == [(5,)]
    assert (await shop.reconcilers.run("by_hand")).outcomes["changed"] == 5
    assert (await shop.reconcilers.run("purge-by-hand")).outcomes["changed"] == 1
    found = await by_name(shop)
    assert [found[name]["every"] for name in ("by_hand", "purge-by-hand", "by_itself")] == [None, None, "1h"]
    assert (await shop.reconcilers.show("by_hand"))["next_sweep_at"] is None
    assert await shop.reconcilers.behind("by_hand") is None


async def test_a_limited_run_claims_no_more_than_its_limit(shop: App, query: Query) -> None:
    run = await shop.reconcilers.run("recover", limit=3)
    assert run.outcomes["claimed"] == 3
    assert query("select count(*) from papers where state = 'stored'") == [(3,)]
    assert query("select last_swept_at from trueup.reconcilers") == [(None,)]  # it was no whole sweep
    moved = await shop.reconcilers.run("move-papers-trial", limit=2)
    assert moved.outcomes["changed"] == 2
    assert query("select count(*) from papers where state = 'expired'") == [(2,)]


async def test_a_limited_run_counts_rows_that_are_due_again_too(shop: App, query: Query) -> None:
    await shop.reconcilers.run("recover")
    query("update trueup.rows set due_at = now() - interval '1 s' where state = 'resting'")
    query("insert into papers select n, 'uploading', now() - interval '1 h' from generate_series(21, 25) as n")
    run = await shop.reconcilers.run("recover", limit=4)
    assert run.outcomes["claimed"] == 4


async def test_progress_is_told_with_how_many_there_are(shop: App) -> None:
    told: list[tuple[int, int | None]] = []
    await shop.reconcilers.run("recover", progress=lambda done, total: told.append((done, total)))
    assert (told[0], told[-1]) == ((0, 10), (10, 10))
    limited: list[tuple[int, int | None]] = []
    await shop.reconcilers.run("move-papers-trial", limit=2, progress=lambda *args: limited.append(args))
    assert (limited[0], limited[-1]) == ((0, 2), (2, 2))


async def test_a_run_that_would_touch_too_much_is_refused(shop: App, query: Query) -> None:
    run = await shop.reconcilers.run("too-much")
    assert (run.ending, run.ok) == ("refused", False)
    assert run.why is not None
    assert "max_fraction=0.1" in run.why
    assert query("select count(*) from papers") == [(15,)]


async def test_a_cancelled_run_gives_back_what_it_has_not_begun(shop: App, query: Query) -> None:
    begun: list[int] = []
    go_on = asyncio.Event()

    @shop.table("papers", key="id", state="state").reconcile("uploading", concurrency=2)
    async def slow(paper: Row) -> To:
        begun.append(paper["id"])
        await go_on.wait()
        return To("stored")

    task = asyncio.create_task(shop.reconcilers.run("slow"))
    await until(lambda: len(begun) == 2)
    task.cancel()
    await until(lambda: query("select count(*) from trueup.rows where state = 'held'") == [(2,)])
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert query("select count(*) from trueup.rows") == [(0,)]
    assert query("select id from papers where state = 'stored' order by id") == [(n,) for n in sorted(begun)]


async def test_a_run_that_is_cancelled_twice_interrupts_its_handlers(shop: App, query: Query) -> None:
    begun = asyncio.Event()

    @shop.table("papers", key="id", state="state").reconcile("uploading")
    async def endless(paper: Row) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(shop.reconcilers.run("endless"))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)  # it has begun to end
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    assert query("select state, attempt, count(*) from trueup.rows group by 1, 2") == [("resting", 0, 10)]  # had begun


async def test_a_paused_one_runs_only_when_forced(shop: App) -> None:
    await shop.reconcilers.pause("recover", "storage is down")
    with pytest.raises(ConfigError, match=r"^reconciler 'recover' is paused \(storage is down\); resume it"):
        await shop.reconcilers.run("recover")
    assert (await shop.reconcilers.run("recover", force=True)).outcomes["claimed"] == 10


async def test_one_that_rests_says_why_it_is_not_run(shop: App, query: Query) -> None:
    await shop.reconcilers.run("recover", limit=1)
    query(
        "update trueup.reconcilers set paused_until = now() + interval '1 min', pauses = 1, note = 'failed over and over'"
    )
    with pytest.raises(ConfigError, match=r"open circuit breaker until .*: it failed over and over; resume it"):
        await shop.reconcilers.run("recover")
    assert (await by_name(shop))["recover"]["state"] == "resting"
    assert await shop.reconcilers.resume("recover")
    assert (await by_name(shop))["recover"]["state"] == "active"


async def test_what_this_app_does_not_declare_is_not_run(shop: App, database_url: str) -> None:
    await shop.reconcilers.run("recover")
    other = App(database_url)
    await other.open()
    try:
        with pytest.raises(ConfigError, match="in the database, but this App does not declare it"):
            await other.reconcilers.run("recover")
    finally:
        await other.close()
    with pytest.raises(NotFound, match="did you mean 'recover'"):
        await shop.reconcilers.run("Recovre")
    with pytest.raises(NotFound, match="known: move-papers-trial, pair, recover, too-much"):
        await shop.reconcilers.run("zzz")


async def test_a_table_that_is_not_there_is_an_error_that_names_it(shop: App) -> None:
    @shop.table("nothing", key="id").reconcile(name="lost")
    async def lost(row: Row) -> None: ...

    for run in (shop.reconcilers.run("lost"), shop.reconcilers.dry_run("lost")):
        with pytest.raises(ConfigError, match="'nothing': there is no such table"):
            await run


# -- shadow -----------------------------------------------------------------------------------------------------------


async def test_a_shadow_run_proposes_and_leaves_everything_as_it_was(shop: App, query: Query) -> None:
    await shop.reconcilers.run("recover", limit=1)
    run = await shop.reconcilers.run("recover", shadow=True)
    assert run.proposed == {
        "To('stored')": 6,
        "Unchanged": 1,
        "raise ConnectionError": 1,
        "raise trueup.GiveUp": 1,
    }
    assert run.ok
    assert query("select count(*) from papers where state = 'uploading'") == [(9,)]
    assert query("select distinct state, attempt, due_at <= now() from trueup.rows") == [("resting", 0, True)]
    shown = await shop.reconcilers.show("recover")
    assert shown["mode"] == "live"  # the database is told what is declared, not what was tried
    assert {each["kind"]: each["rows"] for each in shown["proposals"]} == {"To('stored')": 6, "Unchanged": 1}
    assert shown["proposals"][0]["examples"][0]["proposed"] == "To('stored', size=3)"
    real = await shop.reconcilers.run("recover")
    assert (real.outcomes["claimed"], real.outcomes["changed"]) == (9, 6)


@pytest.mark.parametrize("by", [None, "state"])
async def test_a_shadow_run_of_a_live_one_neither_opens_nor_closes_its_breaker(
    shop: App, query: Query, by: str | None
) -> None:
    outcome: Again | To = Again("1h", everybody=True)

    @shop.table("papers", key="id", state="state").reconcile("uploading", pause_by=by, concurrency=1)
    async def busy(paper: Row) -> Again | To:
        return outcome

    paused = "select count(*) from trueup.reconcilers where paused_until > now()"
    paused_keys = "select count(*) from trueup.reconciler_pauses"
    await shop.reconcilers.run("busy", shadow=True)
    assert query(paused) == query(paused_keys) == [(0,)]
    await shop.reconcilers.run("busy")
    query("update trueup.reconcilers set paused_until = now()")
    query("update trueup.reconciler_pauses set paused_until = now()")
    query("delete from trueup.rows")
    before = query("select pauses from trueup.reconcilers"), query(paused_keys)
    outcome = To("stored")
    run = await shop.reconcilers.run("busy", shadow=True)
    assert run.proposed["To('stored')"] > 0
    assert (query("select pauses from trueup.reconcilers"), query(paused_keys)) == before


async def test_a_shadow_run_of_a_live_one_leaves_no_trace_for_workers(shop: App, query: Query) -> None:
    @shop.table("papers", key="id", state="state").reconcile("uploading", pause_after=2)
    async def fragile(paper: Row) -> None:
        raise ConnectionError("refused")

    run = await shop.reconcilers.run("fragile", shadow=True)
    assert (run.proposed, run.ok) == ({"raise ConnectionError": 10}, True)
    assert query("select state, paused_until, pauses, last_swept_at from trueup.reconcilers") == [
        ("active", None, 0, None)
    ]
    assert query("select count(*) from trueup.sweeps") == [(0,)]
    assert query("select distinct state, attempt, due_at <= now() from trueup.rows") == [("resting", 0, True)]


async def test_there_is_no_shadow_of_what_has_no_handler(shop: App) -> None:
    with pytest.raises(ConfigError, match="has no handler"):
        await shop.reconcilers.run("move-papers-trial", shadow=True)
    with pytest.raises(ConfigError, match="limit=0"):
        await shop.reconcilers.run("recover", limit=0)


# -- dry runs ---------------------------------------------------------------------------------------------------------


async def test_a_dry_run_lists_rows_and_touches_nothing(shop: App, query: Query) -> None:
    dry = await shop.reconcilers.dry_run("recover", limit=3)
    assert [(row["key"], row["state"], row["attempts"]) for row in dry.rows] == [
        ("1", "uploading", 0),
        ("2", "uploading", 0),
        ("3", "uploading", 0),
    ]
    assert (dry.total, dry.more) == (10, True)
    assert dry.would.startswith("call ")
    assert dry.would.endswith("recover")
    assert query("select count(*) from trueup.rows") == [(0,)]
    assert query("select count(*) from trueup.reconcilers") == [(0,)]


async def test_a_dry_run_reads_no_columns_that_it_does_not_show(shop: App, query: Query) -> None:
    """They may be large, and one whose values cannot be read shows that they are not read."""
    query("alter table papers add unreadable int generated always as (1 / (id - id)) virtual")
    assert (await shop.reconcilers.dry_run("recover")).total == 10


async def test_a_dry_run_of_a_purge_says_what_it_would_do_and_whether_it_may(shop: App, query: Query) -> None:
    move = await shop.reconcilers.dry_run("move-papers-trial")
    assert (move.would, move.total, move.more, move.ok) == ("move to expired", 5, False, True)
    delete = await shop.reconcilers.dry_run("too-much", limit=2)
    assert (delete.would, delete.total, len(delete.rows), delete.ok) == ("delete", 5, 2, False)
    assert query("select count(*) from papers where state = 'trial'") == [(5,)]


async def test_a_dry_run_in_shadow_calls_handlers_and_rolls_back_what_they_write(shop: App, query: Query) -> None:
    papers = shop.table("papers", key="id", state="state")
    called = []

    @papers.reconcile("trial", claim="row_lock")
    async def locked(paper: Row, *, tx: AsyncConnection[Any]) -> Stay:
        await tx.execute("update papers set size = 99")
        called.append(paper["id"])
        return Stay(size=1)

    @papers.reconcile("trial")
    async def together(paper: Row, ctx: Context) -> None:
        async with ctx.transaction(To("expired")) as tx:
            await tx.execute("update papers set size = 98")

    shown = (await shop.reconcilers.dry_run("locked", shadow=True)).rows
    assert [row["outcome"] for row in shown] == ["Stay(size=1)"] * 5
    assert sorted(called) == [101, 102, 103, 104, 105]
    shown = (await shop.reconcilers.dry_run("together", shadow=True)).rows
    assert [row["outcome"] for row in shown] == ["To('expired')"] * 5
    shown = (await shop.reconcilers.dry_run("recover", shadow=True)).rows
    assert shown[4]["outcome"] == "raises ConnectionError: refused"
    assert query("select count(*) from papers where size is not null") == [(0,)]
    assert query("select count(*) from trueup.rows") == [(0,)]


# -- scans ------------------------------------------------------------------------------------------------------------


async def test_a_scan_is_run_by_hand_limited_and_gone_on_with(shop: App) -> None:
    handled = []

    @shop.scan("objects", every="1d", concurrency=2)
    async def objects(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for n in range(cursor or 0, 12):
            yield n, n + 1

    @objects.each
    async def handle(item: int) -> None:
        handled.append(item)
        if item == 7:
            raise ValueError("seven")

    dry = await shop.reconcilers.dry_run("objects", limit=2)
    assert [(row["item"], row["next_cursor"]) for row in dry.rows] == [("0", "1"), ("1", "2")]
    assert dry.more
    assert handled == []
    first = await shop.reconcilers.run("objects", limit=5)
    assert (first.ending, sorted(handled)) == ("stopped", [0, 1, 2, 3, 4])
    shown = await shop.reconcilers.show("objects")
    assert (shown["what"], shown["scan"]["underway"], shown["scan"]["cursor"]) == ("scan", True, 4)
    rest = await shop.reconcilers.run("objects")
    assert (rest.ending, rest.outcomes, rest.ok) == ("completed", {"items": 12, "failed": 1}, False)
    assert set(handled) == set(range(12))


async def test_a_sync_scan_is_limited_too_and_a_failing_one_says_why(shop: App) -> None:
    handled = []

    @shop.scan("files", every="1d")
    async def files(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for n in range(100):
            yield n, n + 1

    @files.each
    def handle(item: int) -> None:
        handled.append(item)

    @shop.scan("broken", every="1d")
    async def broken(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        yield 1, 2
        raise OSError("no disk")

    broken.each(handle)
    told: list[tuple[int, int | None]] = []
    assert (await shop.reconcilers.run("files", limit=3, progress=lambda *args: told.append(args))).ok
    assert (handled, told) == ([0, 1, 2], [(1, 3), (2, 3), (3, 3)])
    run = await shop.reconcilers.run("broken")
    assert (run.ending, run.why, run.ok) == ("failed", "OSError: no disk", False)
    assert (await shop.reconcilers.dry_run("broken")).why == "its generator raised OSError: no disk"
    assert (await by_name(shop))["broken"]["state"] == "failing"
    with pytest.raises(ConfigError, match="scans cannot be paused"):
        await shop.reconcilers.pause("broken")
    with pytest.raises(ConfigError, match="no shadow mode"):
        await shop.reconcilers.run("files", shadow=True)


# -- looking ----------------------------------------------------------------------------------------------------------


async def test_the_list_tells_never_started_ones_from_those_declared_no_more(shop: App, query: Query) -> None:
    declare = "insert into trueup.reconcilers (name, place, declared, declared_at) values ('old', 'p', %s, now())"
    query(declare, '{"what": "reconcile", "rows": "p: x", "every": "1m", "mode": "live"}')
    await shop.reconcilers.run("recover")
    found = await by_name(shop)
    assert [(found[name]["known"], found[name]["declared_here"]) for name in ("recover", "pair", "old")] == [
        (True, True),
        (False, True),
        (True, False),
    ]
    recover = found["recover"]
    assert (recover["resting"], recover["quarantined"], recover["outcomes"]["changed"]) == (2, 1, 7)
    assert recover["rows"] == "papers: uploading, unchanged for 10m"
    assert recover["last_swept_at"] is not None


async def test_without_code_nobody_can_tell_what_is_declared(shop: App, database_url: str) -> None:
    await shop.reconcilers.run("recover")
    async with App(database_url) as bare:
        (record,) = await bare.reconcilers.list()
        assert (record["name"], record["declared_here"]) == ("recover", None)
        assert (await bare.reconcilers.show("recover"))["errors"][0]["state"] in ("resting", "quarantined")
        assert await bare.reconcilers.pause("recover")
        assert await bare.reconcilers.waiting("recover") is None


async def test_one_is_shown_with_its_sweeps_errors_and_holders(shop: App, query: Query) -> None:
    await shop.reconcilers.run("recover")
    query(
        "insert into trueup.workers values (%s, 'h', 7, null, '{default}', 1, now(), now(), now() + interval '1 min')",
        "00000000-0000-0000-0000-000000000001",
    )
    query(
        "insert into trueup.rows (reconciler, key, state, due_at, holder, term, attempt, claimed_at, changed_at)"
        " values ('recover', 'x', 'held', now() + interval '1 min', '00000000-0000-0000-0000-000000000001', 1, 1, now(), now())"
    )
    shown = await shop.reconcilers.show("recover")
    (sweep,) = shown["sweeps"]
    assert (sweep["claimed"], sweep["host"]) == (10, None)
    (holder,) = shown["held_by"]
    assert (holder["host"], holder["pid"], holder["rows"], holder["expired"], holder["keys"]) == ("h", 7, 1, 0, ["x"])
    assert {each["key"]: each["error"]["type"] for each in shown["errors"]} == {
        "5": "ConnectionError",
        "7": "trueup.GiveUp",
    }
    assert shown["next_sweep_at"] > shown["last_swept_at"]


async def test_waiting_rows_are_counted(shop: App) -> None:
    assert await shop.reconcilers.waiting("recover") == 10
    assert await shop.reconcilers.waiting("move-papers-trial") == 5


# -- pausing ----------------------------------------------------------------------------------------------------------


async def test_pausing_and_resuming_say_whether_anything_changed(shop: App) -> None:
    events = heard(shop, ReconcilerPaused, ReconcilerResumed)
    assert await shop.reconcilers.pause("recover", "why")  # also one that was never started
    assert not await shop.reconcilers.pause("recover", "again")
    assert (await by_name(shop))["recover"]["note"] == "why"
    assert await shop.reconcilers.resume("recover")
    assert not await shop.reconcilers.resume("recover")
    assert not await shop.reconcilers.resume("pair")
    assert events == [ReconcilerPaused("recover", "why", 0.0), ReconcilerResumed("recover")]
    with pytest.raises(NotFound, match="did you mean 'recover'"):
        await shop.reconcilers.pause("recove")


async def test_a_paused_one_stays_paused_when_a_worker_starts(shop: App) -> None:
    await shop.reconcilers.pause("recover", "why")
    await shop.reconcilers.run("recover", force=True, limit=1)  # looks at its table as a worker does
    assert (await by_name(shop))["recover"]["state"] == "paused"


# -- quarantine -------------------------------------------------------------------------------------------------------


async def test_a_released_row_is_looked_at_again_with_all_attempts(shop: App, query: Query) -> None:
    await shop.reconcilers.run("recover")
    events = heard(shop, RowsFreed)
    (row,) = await shop.reconcilers.quarantined("recover")
    assert (row["key"], row["reason"], row["was_state"]) == ("7", "no such object", "uploading")
    shown = await shop.reconcilers.quarantined_row("recover", "7")
    assert shown["errors"][0]["traceback"].endswith("GiveUp: no such object\n")
    assert await shop.reconcilers.release("recover", ["7", "8", "5"]) == {"7"}
    assert query("select state, attempt, errors::text, due_at <= now() from trueup.rows where key = '7'") == [
        ("resting", 0, "[]", True)
    ]
    assert events == [RowsFreed("recover", 1, "released")]
    assert (await shop.reconcilers.run("recover")).outcomes["quarantined"] == 1


async def test_releasing_wakes_those_who_listen(shop: App, database_url: str) -> None:
    await shop.reconcilers.run("recover")
    async with await AsyncConnection.connect(database_url, autocommit=True) as listener:
        await listener.execute("listen trueup_trueup")
        await shop.reconcilers.release("recover", ["8"])
        await shop.reconcilers.release("recover", ["7"])
        heard = [each.payload async for each in listener.notifies(timeout=10, stop_after=1)]
    assert heard == ["reconcilers"]


async def test_a_discarded_row_is_left_alone_and_can_still_be_released(shop: App, query: Query) -> None:
    await shop.reconcilers.run("recover")
    assert await shop.reconcilers.discard("recover", ["7"]) == {"7"}
    assert await shop.reconcilers.discard("recover", ["7"]) == set()
    assert await shop.reconcilers.quarantined() == []
    assert [row["key"] for row in await shop.reconcilers.quarantined(discarded=True)] == ["7"]
    assert (await shop.reconcilers.run("recover")).outcomes["claimed"] == 0
    assert await shop.reconcilers.release("recover", ["7"]) == {"7"}
    assert (await shop.reconcilers.run("recover")).outcomes["claimed"] == 1


@pytest.mark.parametrize("spelled", ['["b", "2"]', '["b",2]', '[ "b" , "2" ]'])
async def test_keys_of_several_columns_are_json_arrays_however_they_are_written(shop: App, spelled: str) -> None:
    await shop.reconcilers.run("pair")
    assert (await shop.reconcilers.quarantined_row("pair", spelled))["key"] == '["b", "2"]'
    assert await shop.reconcilers.release("pair", [spelled]) == {spelled}


async def test_a_key_with_quotes_and_umlauts_is_found_as_it_is_listed(shop: App) -> None:
    await shop.reconcilers.run("pair")
    keys = [row["key"] for row in await shop.reconcilers.quarantined("pair")]
    assert await shop.reconcilers.discard("pair", keys) == set(keys)
    assert len(keys) == 2


async def test_all_of_quarantine_is_freed_a_page_at_a_time(
    shop: App, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.operate.quarantine.PAGE", 2)
    query("update papers set id = 70 where id = 7")
    query("insert into papers select n, 'uploading', now() - interval '1 h' from generate_series(11, 15) as n")

    @shop.table("papers", key="id", state="state").reconcile("uploading")
    async def never(paper: Row) -> None:
        raise GiveUp("never")

    await shop.reconcilers.run("never")
    pages: list[int] = []
    events = heard(shop, RowsFreed)
    assert await shop.reconcilers.count_quarantined("never") == 15
    assert await shop.reconcilers.release_all("never", pages.append) == 15
    assert pages == [2] * 7 + [1]
    await shop.reconcilers.run("never")
    assert await shop.reconcilers.discard_all("never") == 15
    assert await shop.reconcilers.discard_all("never") == 0
    assert events == [RowsFreed("never", 15, "released"), RowsFreed("never", 15, "discarded")]


async def test_a_row_that_fails_again_while_all_are_released_is_not_released_twice(
    still: App, clock: ManualClock, database_url: str, query: Query
) -> None:
    query(TABLES)

    @still.table("pairs", key=("a", "b"), state="state").reconcile("new")
    async def pair(row: Row) -> None:
        raise GiveUp("never")

    await still.open()
    await still.reconcilers.run("pair")

    def fail_again(count: int) -> None:
        query(
            "update trueup.rows set state = 'quarantined', due_at = 'infinity', changed_at = changed_at + interval '1 s'"
        )

    assert await still.reconcilers.release_all("pair", fail_again) == 2
    assert await still.reconcilers.count_quarantined("pair") == 2


async def test_quarantine_of_names_that_are_none(shop: App) -> None:
    for work in (
        shop.reconcilers.quarantined("nope"),
        shop.reconcilers.release("nope", ["1"]),
        shop.reconcilers.discard_all("nope"),
        shop.reconcilers.show("nope"),
    ):
        with pytest.raises(NotFound, match="no reconciler is called 'nope'"):
            await work
    with pytest.raises(NotFound, match="it has no record of such a row"):
        await shop.reconcilers.quarantined_row("recover", "7")


# -- forgetting -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["resting", "quarantined", "discarded"])
async def test_a_removed_reconciler_is_forgotten_with_all_that_is_known(shop: App, query: Query, state: str) -> None:
    told: list[Event] = []
    shop.events.subscribe(told.append, RowsFreed)
    await shop.reconcilers.run("recover")
    query("update trueup.rows set state = %s where reconciler = 'recover'", state)
    known = query("select count(*) from trueup.rows where reconciler = 'recover'")[0][0]
    before = query("select string_agg(p::text || p.xmin::text, ',' order by id) from papers as p")
    assert known
    assert await shop.reconcilers.forget("recover") == known
    assert told == [RowsFreed("recover", known, "forgotten")]
    for table in ("rows where reconciler", "reconcilers where name", "sweeps where reconciler"):
        assert query(f"select count(*) from trueup.{table} = 'recover'") == [(0,)]
    assert query("select string_agg(p::text || p.xmin::text, ',' order by id) from papers as p") == before
    assert query("select count(*) from trueup.reconcilers where name <> 'recover'") == [(0,)]
    with pytest.raises(NotFound, match="no reconciler is called 'recovr'"):
        await shop.reconcilers.forget("recovr")


async def test_a_forgetting_that_was_interrupted_is_recorded_with_what_it_did(
    shop: App, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.operate.reconcilers.PAGE", 2)
    await shop.reconcilers.run("recover")
    query("delete from trueup.rows where reconciler = 'recover'")
    query(
        "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)"
        " select 'recover', i::text, 'resting', now(), 1, 1, now(), now() from generate_series(1, 5) as i"
    )

    def interrupt(gone: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await shop.reconcilers.forget("recover", interrupt, by="ada")
    recorded = "select actor, action, name, count from trueup.actions where action = 'forget' order by id"
    assert query(recorded) == [("ada", "forget", "recover", 2)]
    assert await shop.reconcilers.forget("recover", by="bob") == 3
    assert query(recorded) == [("ada", "forget", "recover", 2), ("bob", "forget", "recover", 3)]


async def test_what_a_living_worker_declares_or_holds_is_not_forgotten(shop: App, query: Query) -> None:
    async with shop.worker():
        await until(lambda: query("select count(*) from trueup.declarations where 'recover' = any(reconcilers)")[0][0])
        with pytest.raises(ConfigError, match="declared by a living worker"):
            await shop.reconcilers.forget("recover")
        (listed,) = [each for each in await shop.reconcilers.list() if each["name"] == "recover"]
        assert listed["declared_by_worker"] is True
    query(
        "insert into trueup.rows (reconciler, key, state, due_at, holder, term, attempt, claimed_at, changed_at)"
        " values ('recover', 'x', 'held', now() + interval '1 h', gen_random_uuid(), 1, 1, now(), now())"
    )
    with pytest.raises(ConfigError, match="1 rows are held by a worker"):
        await shop.reconcilers.forget("recover")
    query("update trueup.rows set due_at = now() - interval '1 s' where key = 'x'")
    assert await shop.reconcilers.forget("recover") >= 1


async def test_people_are_told_of_rows_whose_reconciler_no_living_worker_declares(shop: App, query: Query) -> None:
    await shop.reconcilers.run("recover")
    query(
        "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)"
        " select 'renamed', n::text, 'quarantined', 'infinity', n, 1, now(), now() from generate_series(1, 3) as n"
    )
    assert (await shop.reconcilers.summary())["undeclared"] == {}, "while no worker lives, nobody can tell"
    assert [each["declared_by_worker"] for each in await shop.reconcilers.list() if each["name"] == "renamed"] == [None]
    async with shop.worker():
        await until(lambda: query("select count(*) from trueup.declarations where 'recover' = any(reconcilers)")[0][0])
        assert (await shop.reconcilers.summary())["undeclared"] == {"renamed": 3}
        listed = {each["name"]: each["declared_by_worker"] for each in await shop.reconcilers.list()}
        assert (listed["renamed"], listed["recover"]) == (False, True)
        query("update trueup.workers set declaration = null")  # a worker of an older release does not say
        assert (await shop.reconcilers.summary())["undeclared"] == {}


@pytest.mark.parametrize("last", ["live", "shadow"])
async def test_shadow_mode_leaves_nothing_behind_when_it_goes_live(database_url: str, query: Query, last: str) -> None:
    query(TABLES)

    def declared(mode: str) -> App:
        app = App(database_url)
        papers = app.table("papers", key="id", state="state", changed_at="changed_at")

        @papers.reconcile(
            "uploading", stale_for="10m", revisit="1h", mode=mode, name="recover", retry=Retry(max_attempts=1)
        )
        async def recover(paper: Row) -> To:
            if mode == "shadow" and paper["id"] % 2:
                raise ConnectionError("refused")
            return To("stored")

        return app

    async with declared("shadow") as shadow:
        await shadow.reconcilers.run("recover")
        assert await shadow.reconcilers.count_known("recover") == 10
        assert await shadow.reconcilers.count_quarantined("recover") == 5
    async with declared(last) as app:
        run = await app.reconcilers.run("recover")
        left = 10 if last == "shadow" else 0
        assert run.outcomes["changed"] == 10 - left
        assert await app.reconcilers.count_known("recover") == left
