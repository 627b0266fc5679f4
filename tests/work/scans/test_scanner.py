"""Scans as an instance does them: pass by pass, and in a worker that loops."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from tests.store.desk import Desk
from tests.support.watching import TIMEOUT, Watched, until
from trueup import App, GiveUp, LostLease
from trueup.clock import elapsed
from trueup.events import LeaseLost, ScanCompleted, ScanItemFailed, ServiceFailed
from trueup.reconcile.progress import Point, Progress
from trueup.reconcile.scan import Scan
from trueup.store.rows.scans import Fence
from trueup.testing.clock import ManualClock
from trueup.work.scans import scanning
from trueup.work.scans.scanner import LOOK, MAX_PAUSE, SPREAD, Scanner
from trueup.work.worker import LAST_WORD, Worker

pytestmark = pytest.mark.asyncio

Handler = Callable[[Any], Any]
PAGE = 50


def up_to(count: int) -> Any:
    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for number in range(cursor or 0, count):
            yield number, number + 1

    return source


class Bench:
    """One App, and scanners of as many instances as asked for."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.events = Watched(app)
        self._workers: list[Worker] = []

    def declare(self, source: Any, handler: Handler, **options: Any) -> Scan[Any]:
        scan = self.app.scan("things", **{"every": "1h", **options})(source)
        scan.each(handler)
        return scan

    def scanner(self) -> Scanner:
        """Of another instance each time."""
        worker = self.app.worker()
        self._workers.append(worker)
        return worker.scanners["things"]

    async def value(self, column: str) -> Any:
        return await Desk(self.app.store).scalar(f"select {column} from trueup.scans where name = 'things'")

    async def steal(self) -> None:
        """Let the lease go to somebody else."""
        query = (
            "update trueup.leases set term = term + 1, holder = gen_random_uuid(), lease_until = now() + interval '1 h'"
        )
        await Desk(self.app.store).scalar(query)

    async def close(self) -> None:
        for worker in self._workers:
            await worker.abandon()


@pytest_asyncio.fixture
async def bench(app: App) -> AsyncIterator[Bench]:
    await app.open()
    bench = Bench(app)
    yield bench
    await bench.close()


@pytest.fixture
def saving_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "SAVE_EVERY", 0.0)


# -- from the beginning to the end ----------------------------------------------------------------------------------------


async def test_fifteen_hundred_items_of_many_pages_are_each_handled_once(bench: Bench) -> None:
    handled: list[int] = []

    async def pages(cursor: str | None) -> AsyncIterator[tuple[int, str | None]]:
        page = int(cursor or 0)
        while page * PAGE < 1_500:
            following = str(page + 1) if (page + 1) * PAGE < 1_500 else None  # as services say that there is no more
            for number in range(page * PAGE, (page + 1) * PAGE):
                yield number, following
            page += 1

    async def handle(item: int) -> None:
        handled.append(item)
        await asyncio.sleep(0)

    bench.declare(pages, handle, concurrency=8)
    scanned = await bench.scanner().scan_once()
    assert (scanned.ending, scanned.items, scanned.failed) == ("completed", 1_500, 0)
    assert sorted(handled) == list(range(1_500))
    (event,) = bench.events.of(ScanCompleted)
    assert (event.scan, event.items, event.failed) == ("things", 1_500, 0)
    assert await bench.value("cursor is null and not underway and items = 1500")


async def test_concurrency_bounds_running_handlers_and_twice_that_bounds_rows_in_hand(
    bench: Bench,
) -> None:
    running, peak, in_hand, most_in_hand = 0, 0, 0, 0

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        nonlocal in_hand, most_in_hand
        for number in range(200):
            in_hand += 1
            most_in_hand = max(most_in_hand, in_hand)
            yield number, number

    async def handle(item: int) -> None:
        nonlocal running, peak, in_hand
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.001)
        running -= 1
        in_hand -= 1

    bench.declare(source, handle, concurrency=7)
    await bench.scanner().scan_once()
    assert peak == 7
    assert most_in_hand == 14


async def test_a_plain_function_handles_in_threads_as_many_as_concurrency(bench: Bench) -> None:
    threads: set[int] = set()
    together = threading.Barrier(4, timeout=TIMEOUT)

    def handle(item: int) -> None:
        threads.add(threading.get_ident())
        together.wait()

    bench.declare(up_to(8), handle, concurrency=4)
    assert (await bench.scanner().scan_once()).items == 8
    assert threading.get_ident() not in threads
    assert len(threads) == 4


async def test_a_source_without_anything_completes(bench: Bench) -> None:
    bench.declare(up_to(0), print)
    assert (await bench.scanner().scan_once()).ending == "completed"


# -- keeping the cursor ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("saving_at_once")
async def test_a_slow_first_item_holds_the_cursor_back_while_later_ones_complete(bench: Bench) -> None:
    release, handled = asyncio.Event(), []

    async def handle(item: int) -> None:
        if item == 0:
            await release.wait()
        handled.append(item)

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for number in range(30):
            yield number, number + 1
        await asyncio.Event().wait()

    bench.declare(source, handle, concurrency=4)
    scanner = bench.scanner()
    pass_ = asyncio.create_task(scanner.scan_once())
    await until(lambda: len(handled) == 29)
    assert await bench.value("cursor is null and items = 0")
    release.set()
    await until_value(bench, "cursor", 29)  # the thirtieth may have more with the same cursor after it
    await scanner.stop()
    assert (await pass_).ending == "stopped"


async def until_value(bench: Bench, column: str, wanted: object) -> None:
    async with asyncio.timeout(TIMEOUT):
        while await bench.value(column) != wanted:
            await asyncio.sleep(0.01)


async def test_it_is_kept_every_hundred_items_and_not_with_each(bench: Bench) -> None:
    kept: list[int] = []

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for number in range(1_000):
            yield number, number + 1
            await asyncio.sleep(0.0005)

    async def handle(item: int) -> None: ...

    bench.declare(source, handle)
    scanner = bench.scanner()
    save = scanner._scans.save

    async def noted(name: str, point: Point, failures: int, fence: Fence) -> None:
        kept.append(point.items)
        await save(name, point, failures, fence)

    scanner._scans.save = noted  # type: ignore[method-assign]
    await scanner.scan_once()
    assert 3 <= len(kept) <= 12
    assert kept == sorted(kept)


@pytest.mark.usefixtures("saving_at_once")
async def test_after_the_last_page_the_beginning_is_not_stored_as_the_cursor(bench: Bench) -> None:
    kept: list[str | None] = []

    async def source(cursor: str | None) -> AsyncIterator[tuple[int, str | None]]:
        for number in range(400):
            yield number, "last page" if number < 200 else None  # as services say that there is no more

    async def handle(item: int) -> None:
        await asyncio.sleep(0)

    bench.declare(source, handle)
    scanner = bench.scanner()
    save = scanner._scans.save

    async def noted(name: str, point: Point, failures: int, fence: Fence) -> None:
        kept.append(point.cursor)
        await save(name, point, failures, fence)

    scanner._scans.save = noted  # type: ignore[method-assign]
    assert (await scanner.scan_once()).ending == "completed"
    assert set(kept) == {'"last page"'}


@pytest.mark.usefixtures("saving_at_once")
async def test_a_page_is_not_left_behind_before_its_last_item_was_even_found(bench: Bench) -> None:
    """Items of a page share the cursor of the next one, as services give it; the generator hangs in the middle."""
    handled: list[int] = []

    async def source(cursor: str | None) -> AsyncIterator[tuple[int, str]]:
        for number in (0, 1):
            yield number, "page 2"
        await asyncio.Event().wait()
        yield 2, "page 2"

    bench.declare(source, handled.append)
    scanner = bench.scanner()
    pass_ = asyncio.create_task(scanner.scan_once())
    await until(lambda: handled == [0, 1])
    await scanner.stop()
    assert (await pass_).ending == "stopped"
    assert await bench.value("cursor is null and underway")


@pytest.mark.usefixtures("saving_at_once")
async def test_a_connection_that_breaks_while_the_cursor_is_kept_does_not_end_the_scan(bench: Bench) -> None:
    broken = 0

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for number in range(100):
            yield number, number + 1
            await asyncio.sleep(0.002)

    async def handle(item: int) -> None:
        nonlocal broken
        if item % 20 == 10:
            query = (
                "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'trueup scan'"
            )
            broken += await Desk(bench.app.store).scalar(query)

    bench.declare(source, handle)
    scanned = await bench.scanner().scan_once()
    assert (scanned.ending, scanned.items) == ("completed", 100)
    assert broken > 0, "the fault did not land"


# -- items that fail ------------------------------------------------------------------------------------------------------


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


async def test_items_that_fail_are_said_and_counted_and_the_scan_goes_on(bench: Bench) -> None:
    items: list[Any] = [
        "fine",
        "raises\0",
        "gives up",
        "exits",
        "cancels itself",
        "x" * 100_000,
        Unspeakable(),
        "fine too",
    ]

    async def source(cursor: int | None) -> AsyncIterator[tuple[Any, int]]:
        for number, item in enumerate(items):
            yield item, number

    async def handle(item: Any) -> None:
        match item:
            case "gives up":
                raise GiveUp("hopeless")
            case "exits":
                raise SystemExit(3)
            case "cancels itself":
                raise asyncio.CancelledError
            case "fine" | "fine too":
                return
            case _:
                raise ValueError("postgresql://me:secret@host/db\0")

    bench.declare(source, handle, concurrency=2)
    scanned = await bench.scanner().scan_once()
    assert (scanned.ending, scanned.items, scanned.failed) == ("completed", 8, 6)
    failed = bench.events.of(ScanItemFailed, scan="things")
    assert Counter(event.error_type for event in failed) == Counter(
        {"ValueError": 3, "trueup.GiveUp": 1, "SystemExit": 1, "asyncio.exceptions.CancelledError": 1}
    )
    assert all("\0" not in event.item + event.error and "secret" not in event.error for event in failed)
    assert max(len(event.item) for event in failed) < 400
    assert any("Unspeakable that cannot be shown" in event.item for event in failed)
    assert await bench.value("failed") == 6


async def test_an_item_over_its_timeout_has_failed(bench: Bench) -> None:
    async def handle(item: int) -> None:
        if item == 3:
            await asyncio.Event().wait()
        if item == 4:
            raise TimeoutError("of its own")

    bench.declare(up_to(10), handle, timeout="20ms", concurrency=3)
    assert (await bench.scanner().scan_once()).failed == 2
    said = {event.item: event.error for event in bench.events.of(ScanItemFailed)}
    assert said == {"3": "ran longer than its timeout of 20ms", "4": "of its own"}


async def test_a_thread_over_its_timeout_is_left_behind(bench: Bench) -> None:
    release = threading.Event()

    def handle(item: int) -> None:
        if item == 0:
            release.wait(TIMEOUT)

    bench.declare(up_to(3), handle, timeout="20ms")
    scanned = await bench.scanner().scan_once()
    release.set()
    assert (scanned.items, scanned.failed) == (3, 1)


# -- generators that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("boom"), ConnectionError("the service is away"), SystemExit(3)])
async def test_a_generator_that_raises_is_said_and_gone_on_with_from_what_was_handled(
    bench: Bench, error: BaseException
) -> None:
    began_at: list[int | None] = []
    handled: list[int] = []

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        began_at.append(cursor)
        for number in range(cursor or 0, 10):
            yield number, number + 1
            if number == 5 and len(began_at) == 1:
                raise error

    async def handle(item: int) -> None:
        handled.append(item)

    bench.declare(source, handle, concurrency=3)
    scanner = bench.scanner()
    assert await scanner.run_once() == 0.0
    (said,) = bench.events.of(ServiceFailed)
    assert said.service == "scan things"
    assert said.error_type == type(error).__name__
    assert await bench.value("cursor = '5' and underway and failures = 1")
    assert 14 <= await scanner.run_once() <= 15 + SPREAD, "and not before"
    assert began_at == [None]
    await Desk(bench.app.store).scalar("update trueup.scans set due_at = now()")
    await scanner.run_once()
    assert began_at == [None, 5]
    assert bench.events.of(ScanCompleted, items=10)
    assert handled == [*range(6), *range(5, 10)]


async def test_a_scan_that_fails_at_the_same_place_backs_off_unless_it_gets_further(
    bench: Bench,
) -> None:
    stuck = True

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        begin = 0 if stuck else cursor or 0  # ignores its cursor at first
        for number in range(begin, begin + 3):
            yield number, number
        raise ValueError("boom")

    bench.declare(source, print)
    scanner = bench.scanner()
    failures = []
    for round_ in range(5):
        stuck = round_ < 3
        assert (await scanner.scan_once(anyway=True)).ending == "failed"
        failures.append(await bench.value("failures"))
    assert failures == [1, 2, 3, 1, 1]


@pytest.mark.parametrize(
    ("yielded", "said"),
    [
        ("just an item", "scan 'things': the generator yielded 'just an item'; it must yield a pair"),
        (("item", object()), "scan 'things': next_cursor: object is not JSON"),
    ],
)
async def test_a_generator_that_yields_what_it_must_not_is_told_so(bench: Bench, yielded: Any, said: str) -> None:
    closed = []

    async def source(cursor: Any) -> AsyncIterator[Any]:
        try:
            yield yielded
        finally:
            closed.append(True)

    bench.declare(source, print)
    scanned = await bench.scanner().scan_once()
    assert scanned.ending == "failed"
    assert said in str(scanned.error)
    assert closed == [True]


async def test_the_generator_runs_in_one_task_and_is_closed_there(bench: Bench) -> None:
    tasks: list[Any] = []

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        try:
            async with asyncio.timeout(TIMEOUT):  # may be left only by the task that entered it
                for number in range(20):
                    tasks.append(asyncio.current_task())
                    yield number, number
        finally:
            tasks.append(asyncio.current_task())

    def failing(item: int) -> None:
        raise ValueError

    bench.declare(source, failing, concurrency=2)
    assert (await bench.scanner().scan_once()).ending == "completed"
    assert len(set(tasks)) == 1


# -- one at a time --------------------------------------------------------------------------------------------------------


async def test_while_one_instance_is_at_it_another_finds_it_held(bench: Bench) -> None:
    inside, release = asyncio.Event(), asyncio.Event()

    async def handle(item: int) -> None:
        inside.set()
        await release.wait()

    bench.declare(up_to(1), handle)
    first, second = bench.scanner(), bench.scanner()
    pass_ = asyncio.create_task(first.scan_once())
    await asyncio.wait_for(inside.wait(), TIMEOUT)
    assert (await second.scan_once()).ending == "elsewhere"
    assert (await first.scan_once()).ending == "elsewhere"
    assert LOOK * 0.8 < await second.run_once() < LOOK * 1.2
    release.set()
    assert (await pass_).ending == "completed"
    assert (await second.scan_once()).ending == "not due"


@pytest.mark.usefixtures("saving_at_once")
async def test_one_that_lost_its_lease_stops_and_keeps_nothing_more(database_url: str) -> None:
    bench = Bench(App(database_url, lease_for="1s"))
    await bench.app.open()
    closed, cancelled = asyncio.Event(), []
    blocked = asyncio.Event()

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        try:
            for number in range(1_000_000):
                yield number, number + 1
        finally:
            closed.set()

    async def handle(item: int) -> None:
        if item < 10:
            return
        try:
            blocked.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(item)
            raise

    bench.declare(source, handle, concurrency=3)
    pass_ = asyncio.create_task(bench.scanner().scan_once())
    await asyncio.wait_for(blocked.wait(), TIMEOUT)
    await until_value(bench, "cursor", 10)
    await bench.steal()
    assert (await asyncio.wait_for(pass_, TIMEOUT)).ending == "lost"
    assert closed.is_set()
    assert sorted(cancelled) == [10, 11, 12]
    assert bench.events.of(LeaseLost, lease="scan:things")
    assert await bench.value("cursor = '10' and underway and items = 10")
    await bench.close()
    await bench.app.close()


async def test_a_cursor_is_not_kept_by_one_whose_lease_went_while_it_believes_in_it(bench: Bench) -> None:
    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        yield 0, 1
        await bench.steal()
        yield 1, 2

    bench.declare(source, print)
    assert (await bench.scanner().scan_once()).ending == "lost"
    assert await bench.value("cursor is null and underway and items = 0")
    assert not bench.events.of(ScanCompleted)


async def test_items_in_hand_are_not_begun_once_the_lease_cannot_be_trusted(bench: Bench) -> None:
    handled: list[int] = []
    held = True

    async def handle(item: int) -> None:
        nonlocal held
        handled.append(item)
        held = False  # as after a SIGSTOP: noticed by the clock before anybody says so

    scan = bench.declare(up_to(10), handle)
    scanner = bench.scanner()
    this = scanning.Pass(scan, scanner._caller, bench.app.events)

    async def save(point: Any) -> None: ...

    progress = Progress(Point(None, 0, 0))
    await this.run(None, progress, save, lambda: held)
    assert handled == [0]
    assert not progress.settled


# -- stopping -------------------------------------------------------------------------------------------------------------


async def test_a_stopped_scan_ends_running_items_and_another_continues_at_once(bench: Bench) -> None:
    handled: list[int] = []
    began_at: list[int | None] = []
    release, inside = asyncio.Event(), asyncio.Event()

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        began_at.append(cursor)
        async for pair in up_to(100)(cursor):
            yield pair

    async def handle(item: int) -> None:
        if item == 20:
            inside.set()
            await release.wait()
        handled.append(item)

    bench.declare(source, handle)
    first = bench.scanner()
    first.start()
    await asyncio.wait_for(inside.wait(), TIMEOUT)
    stopping = asyncio.create_task(first.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    release.set()
    await asyncio.wait_for(stopping, TIMEOUT)
    assert await bench.value("cursor = '21' and underway and failures = 0")
    assert (await bench.scanner().scan_once()).ending == "completed"
    assert began_at == [None, 21]
    assert handled == list(range(100))


async def test_items_not_begun_at_a_stop_do_not_count_as_handled(
    bench: Bench,
) -> None:
    handled: list[int] = []
    ended, release = asyncio.Event(), asyncio.Event()

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        async for pair in up_to(3)(cursor):
            yield pair
        ended.set()

    async def handle(item: int) -> None:
        await release.wait()
        handled.append(item)

    bench.declare(source, handle, concurrency=2)
    scanner = bench.scanner()
    pass_ = asyncio.create_task(scanner.scan_once())
    await asyncio.wait_for(ended.wait(), TIMEOUT)
    stopping = asyncio.create_task(scanner.stop())
    await asyncio.sleep(0)
    release.set()
    await stopping
    assert (await pass_).ending == "stopped"
    assert await bench.value("cursor = '2' and underway")
    assert (await bench.scanner().scan_once()).ending == "completed"
    assert handled == [0, 1, 2]


@pytest.mark.parametrize("deaf", [False, True])
async def test_what_does_not_end_in_time_is_cancelled_and_the_rest_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    monkeypatch.setattr(scanning, "LAST_WORD", 0.1)
    inside, release = asyncio.Event(), asyncio.Event()

    async def handle(item: int) -> None:
        if item == 3:
            inside.set()
            while True:
                try:
                    await release.wait()
                    return
                except asyncio.CancelledError:
                    if not deaf:
                        raise

    bench.declare(up_to(10), handle)
    scanner = bench.scanner()
    scanner.start()
    await asyncio.wait_for(inside.wait(), TIMEOUT)
    stopping = asyncio.create_task(scanner.stop())
    await asyncio.sleep(0)
    scanner.interrupt()
    await asyncio.wait_for(stopping, TIMEOUT)
    assert await bench.value("cursor = '3' and underway")
    assert await Desk(bench.app.store).scalar("select holder is null from trueup.leases"), "the lease is given back"
    release.set()


async def test_a_generator_that_hangs_at_a_stop_is_cancelled_and_closed(
    bench: Bench,
) -> None:
    hanging, closed = asyncio.Event(), asyncio.Event()
    handled: list[int] = []

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        try:
            yield 0, 1
            hanging.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                while True:
                    yield 1, 2
        finally:
            closed.set()

    bench.declare(source, handled.append)
    scanner = bench.scanner()
    scanner.start()
    await asyncio.wait_for(hanging.wait(), TIMEOUT)
    await asyncio.wait_for(scanner.stop(), TIMEOUT)
    assert closed.is_set()
    assert handled == [0]
    assert not bench.events.of(ServiceFailed)


async def test_a_pass_that_is_cancelled_from_outside_leaves_nothing_running(bench: Bench) -> None:
    inside, cancelled, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def source(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        try:
            yield 0, 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def handle(item: int) -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    bench.declare(source, handle)
    scanner = bench.scanner()
    scanner.start()
    await asyncio.wait_for(inside.wait(), TIMEOUT)
    await asyncio.wait_for(scanner.kill(), TIMEOUT)
    assert closed.is_set()
    assert cancelled.is_set()
    assert (await Desk(bench.app.store).scalar("select holder is null from trueup.leases")) is True


# -- when -----------------------------------------------------------------------------------------------------------------


async def test_it_scans_when_the_database_says_so(still: App, clock: ManualClock) -> None:
    await still.open()
    bench = Bench(still)
    handled: list[int] = []
    bench.declare(up_to(1), handled.append, every="10s", run_at_start=False)
    scanner = bench.scanner()
    assert 10 < await scanner.run_once() <= 10 + SPREAD
    clock.advance(seconds=9)
    assert 1 < await scanner.run_once() <= 1 + SPREAD
    assert handled == []
    clock.advance(seconds=1)
    assert await scanner.run_once() == 0
    assert handled == [0]
    assert 10 < await scanner.run_once() <= 10 + SPREAD
    clock.advance(days=3)
    await scanner.run_once()
    await scanner.run_once()
    assert handled == [0, 0], "once for all the intervals that were missed"
    await Desk(still.store).scalar("delete from trueup.scans")
    assert await scanner.run_once() == SPREAD
    assert 10 < await scanner.run_once() <= 10 + SPREAD
    await bench.close()


async def test_it_looks_now_and_then_whether_it_is_due_earlier(bench: Bench) -> None:
    bench.declare(up_to(1), print, every="365d", run_at_start=False)
    assert MAX_PAUSE <= await bench.scanner().run_once() <= MAX_PAUSE + SPREAD


# -- in a worker ----------------------------------------------------------------------------------------------------------


async def test_a_worker_scans_and_a_stop_lets_the_items_end_within_the_drain_time(app: App) -> None:
    bench = Bench(app)
    inside, release, handled = asyncio.Event(), asyncio.Event(), []

    async def handle(item: int) -> None:
        if item == 5:
            inside.set()
            await release.wait()
        handled.append(item)

    bench.declare(up_to(10), handle)
    worker = app.worker()
    await worker.start()
    await asyncio.wait_for(inside.wait(), TIMEOUT)
    stopping = asyncio.create_task(worker.stop(timedelta(seconds=TIMEOUT)))
    await until(lambda: worker.scanners["things"]._stop.is_set())
    release.set()
    await stopping
    assert handled == [0, 1, 2, 3, 4, 5]
    async with app.worker():
        await bench.events.seen(ScanCompleted, items=10)
    assert handled == list(range(10))


async def test_a_stop_without_drain_time_cancels_the_items_and_keeps_what_was_handled(app: App) -> None:
    bench = Bench(app)
    inside = asyncio.Event()

    async def handle(item: int) -> None:
        if item == 5:
            inside.set()
            await asyncio.Event().wait()

    bench.declare(up_to(10), handle)
    worker = app.worker()
    await worker.start()
    await asyncio.wait_for(inside.wait(), TIMEOUT)
    began = elapsed()
    await asyncio.wait_for(worker.stop(timedelta(0)), TIMEOUT)
    assert elapsed() - began < LAST_WORD, "it was cancelled, and not waited for in vain"
    assert await bench.value("cursor = '5' and underway and items = 5")
    assert not bench.events.of(ServiceFailed)


async def test_an_error_of_ours_while_keeping_is_not_taken_for_the_end(bench: Bench) -> None:
    bench.declare(up_to(300), print)
    scanner = bench.scanner()

    async def refuse(name: str, point: Point, failures: int, fence: Fence) -> None:
        raise LostLease("scan:things", 1)

    scanner._scans.save = refuse  # type: ignore[method-assign]
    assert (await scanner.scan_once()).ending == "lost"
    assert await bench.value("underway and items = 0")


async def test_a_scan_that_was_put_off_while_the_clock_was_ahead_is_due_after_its_interval(bench: Bench) -> None:
    async def handle(item: int) -> None: ...

    bench.declare(up_to(3), handle, every="1h")
    scanner = bench.scanner()
    assert await scanner.run_once() == 0.0
    ahead = "started_at = started_at + interval '10 years', due_at = due_at + interval '10 years'"
    await Desk(bench.app.store).scalar(f"update trueup.scans set {ahead} returning 1")
    assert await scanner.run_once() == SPREAD, "it looks again at once"
    assert await scanner.run_once() >= MAX_PAUSE
    assert await bench.value("due_at between now() and now() + interval '1 hour'")
