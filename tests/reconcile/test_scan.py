from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trueup import App, ConfigError, InvalidArguments
from trueup.reconcile.scan import MAX_CURSOR, Scan


async def numbers(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
    for number in range(cursor or 0, 3):
        yield number, number + 1


def scan(**options: Any) -> Scan[int]:
    return Scan("numbers", numbers, **{"every": "1h", **options})


def test_a_scan_says_what_it_is() -> None:
    made = scan(every="90s", concurrency=8, timeout="10s", run_at_start=False)
    assert (made.name, made.concurrency, made.run_at_start) == ("numbers", 8, False)
    assert (made.every, made.timeout) == (timedelta(seconds=90), timedelta(seconds=10))
    assert scan().timeout == timedelta(minutes=5)
    assert scan().run_at_start


def test_calling_it_gives_the_generator() -> None:
    async def collect() -> list[Any]:
        return [pair async for pair in scan()(1)]

    assert asyncio.run(collect()) == [(1, 2), (2, 3)]


def test_only_an_async_generator_function_makes_a_scan() -> None:
    async def coroutine(cursor: Any) -> Any: ...

    def generator(cursor: Any) -> Any:
        yield 1, 2

    for wrong in (coroutine, generator, len, None):
        with pytest.raises(ConfigError, match="async generator function is needed"):
            Scan("numbers", wrong, every="1h")  # type: ignore[arg-type]


def test_the_generator_takes_the_cursor() -> None:
    async def takes_nothing() -> Any:
        yield 1, 2

    with pytest.raises(ConfigError, match="one argument, the cursor"):
        Scan("numbers", takes_nothing, every="1h")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": "0s"}, "every='0s' is too short"),
        ({"every": "999ms"}, "too short"),
        ({"every": 60}, "scan 'numbers': every=: 60 has no unit"),
        ({"timeout": "0s"}, "timeout='0s' is too short"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"concurrency": True}, "concurrency=True"),
        ({"concurrency": "8"}, "concurrency='8'"),
        ({"concurrency": 100_000}, "from 1 to 1,000"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scan(**options)


@pytest.mark.parametrize("name", ["", "with space", "@at", "n" * 191, 5])
def test_names_that_cannot_be_are_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="scan"):
        Scan(name, numbers, every="1h")


def test_what_is_done_with_each_is_needed_and_given_once() -> None:
    made = scan()
    with pytest.raises(ConfigError, match=r"decorate a function with @numbers\.each"):
        _ = made.handler

    @made.each
    async def first(item: int) -> None: ...

    assert made.handler is first
    with pytest.raises(ConfigError, match=r"each is declared twice .*first and .*second"):

        @made.each
        async def second(item: int) -> None: ...


def test_each_takes_one_item() -> None:
    async def takes_two(item: int, other: int) -> None: ...

    async def yields(item: int) -> AsyncIterator[int]:
        yield item

    for wrong in (takes_two, lambda: None):
        with pytest.raises(ConfigError, match="one argument, the item"):
            scan().each(wrong)  # type: ignore[arg-type]
    for unfit in (yields, None):
        with pytest.raises(ConfigError, match="handles one item"):
            scan().each(unfit)  # type: ignore[arg-type]


def test_coroutine_functions_are_told_from_plain_ones() -> None:
    class Callee:
        async def __call__(self, item: int) -> None: ...

    for handler, is_async in ((Callee(), True), (print, False)):
        made = scan()
        made.each(handler)
        assert made.is_async is is_async


def test_what_is_not_a_pair_is_said_with_the_scans_name() -> None:
    for wrong in ("ab", ["item", "cursor"], ("item",), ("item", "cursor", "more"), None):
        with pytest.raises(TypeError, match=r"scan 'numbers': .* must yield a pair"):
            scan().pair(wrong)


@pytest.mark.parametrize("cursor", ["page 2", 17, 1.5, True, [1, "a"], {"after": {"id": 3, "at": None}}, 2**70, ""])
def test_a_cursor_is_any_json_value(cursor: Any) -> None:
    item, encoded = scan().pair((7, cursor))
    assert item == 7
    assert encoded is not None
    assert json.loads(encoded) == cursor


def test_the_beginning_is_no_cursor() -> None:
    assert scan().encode(None) is None


@pytest.mark.parametrize(
    ("cursor", "said"),
    [
        (datetime(2026, 6, 1, tzinfo=UTC), "next_cursor: datetime is not JSON"),
        ({"at": [timedelta(1)]}, r"next_cursor.at\[0\]: timedelta is not JSON"),
        (b"token", "bytes is not JSON"),
        ({1: 2}, "the key 1 is not a text"),
        (float("nan"), "not a JSON number"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        ([10**5_000], "digits"),
        ("x" * MAX_CURSOR, "over the limit"),
    ],
)
def test_a_cursor_that_would_not_come_back_as_it_went_is_refused_and_the_scan_named(cursor: Any, said: str) -> None:
    with pytest.raises(InvalidArguments, match=f"scan 'numbers': .*{said}"):
        scan().encode(cursor)


def test_a_cursor_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidArguments, match="nested too deep"):
        scan().encode(loop)


def test_two_scans_of_one_name_are_refused_and_one_without_each_starts_no_worker(empty_database_url: str) -> None:
    app = App(empty_database_url)
    declared = app.scan("numbers", every="1h")(numbers)
    with pytest.raises(ConfigError, match="declared twice"):
        app.scan("numbers", every="2h")(numbers)
    with pytest.raises(ConfigError, match="it has no handler for its items"):
        app.worker()
    declared.each(print)
    assert list(app.worker().scanners) == ["numbers"]
    app.close_sync()
