from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import DictRow

from trueup.errors import ConfigError
from trueup.jobs.context import Context
from trueup.jobs.outcome import GiveUp
from trueup.reconcile.handler import RowHandler, outcome_of
from trueup.reconcile.outcome import Again, Delete, Stay, To, Unchanged
from trueup.reconcile.row import Row


@dataclass
class Upload:
    id: int


def handler(function: Callable[..., Any], **local_names: Any) -> RowHandler:
    return RowHandler(function, "reconciler 'x'", local_names)


def result(function: Callable[..., Any], row: Any = "row", context: Any = "ctx", tx: Any = "tx") -> Any:
    returned = handler(function).call(row, context, tx)
    return asyncio.run(returned) if inspect.iscoroutine(returned) else returned


def test_the_first_parameter_is_the_row_of_the_shape_annotated_there() -> None:
    async def annotated(upload: Upload) -> None: ...
    async def plain(upload): ...
    def lone(*rows: int) -> None: ...

    assert handler(annotated).shape.make({"id": 1}) == Upload(1)
    assert handler(plain).shape.make({"id": 1}) == Row({"id": 1})
    assert handler(lone).shape.title == "Row"
    assert result(lambda row, /: row) == "row"


def test_annotations_made_of_local_names_are_found() -> None:
    @dataclass
    class Local:
        id: int

    async def on_local(row: Local, *, context: Context) -> None: ...

    assert handler(on_local, Local=Local).shape.make({"id": 1}) == Local(1)
    with pytest.raises(ConfigError, match="reconciler 'x': annotation cannot be resolved: name 'Local' is not defined"):
        handler(on_local)


def test_context_and_transaction_are_given_by_annotation_or_by_name() -> None:
    async def both(row, *, ctx, tx):
        return row, ctx, tx

    async def annotated(row, context: Context, connection: AsyncConnection[DictRow]):
        return row, context, connection

    async def optional(row, tx: AsyncConnection | None = None, c: Optional[Context] = None):  # noqa: UP045
        return row, c, tx

    async def anything(row, ctx: Any = None, tx: Any = None):
        return row, ctx, tx

    for function, context, tx in (
        (both, "ctx", "tx"),
        (annotated, "context", "connection"),
        (optional, "c", "tx"),
        (anything, "ctx", "tx"),
    ):
        parsed = handler(function)
        assert (parsed.context, parsed.tx, parsed.is_async) == (context, tx, True)
        assert result(function) == ("row", "ctx", "tx")


def test_a_handler_that_asks_for_neither_gets_neither() -> None:
    def plain(row, limit=3, *rest, **more):
        return row, limit, rest, more

    parsed = handler(plain)
    assert (parsed.context, parsed.tx, parsed.is_async) == (None, None, False)
    assert result(plain) == ("row", 3, (), {})


def test_a_parameter_called_ctx_that_is_something_else_is_left_alone() -> None:
    def mine(row, ctx: int = 3):
        return ctx

    assert result(mine) == 3
    with pytest.raises(ConfigError, match="nothing is known for its parameter"):
        handler(lambda row, ctx2: None)


class Shop:
    async def reconcile(self, row: Upload, *, ctx: Context) -> Any:
        return self, row, ctx

    @classmethod
    def of_class(cls, row: Upload) -> Any:
        return cls, row

    @staticmethod
    async def of_none(row: Upload) -> Any:
        return row


class Called:
    async def __call__(self, row: Upload, ctx: Context) -> Any:
        return self, row, ctx


def test_methods_partials_and_callable_objects_will_do() -> None:
    async def with_client(client: str, row: Upload, mode: str, *, ctx: Context):
        return client, row, mode, ctx

    shop, called = Shop(), Called()
    bound = functools.partial(functools.partial(with_client, "client"), mode="fast")
    for function, expected in (
        (shop.reconcile, (shop, "row", "ctx")),
        (Shop.of_none, "row"),
        (called, (called, "row", "ctx")),
        (bound, ("client", "row", "fast", "ctx")),
    ):
        parsed = handler(function)
        assert parsed.is_async
        assert parsed.shape.title == "Upload"
        assert result(function) == expected
    assert not handler(shop.of_class).is_async
    assert result(shop.of_class) == (Shop, "row")


def test_a_decorated_function_keeps_what_it_asked_for() -> None:
    def logged(function):
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return wrapper

    @logged
    async def reconcile(row: Upload, *, ctx: Context):
        return row, ctx

    assert handler(reconcile).shape.title == "Upload"
    assert result(reconcile) == ("row", "ctx")


def test_a_plain_function_cannot_have_the_transaction() -> None:
    for function in (lambda row, tx: None, lambda row, tx=None: None):
        with pytest.raises(ConfigError, match="tx is an asynchronous connection; make it an async def"):
            handler(function)


def test_the_transaction_is_not_what_a_synchronous_annotation_says() -> None:
    async def wrong(row, connection: psycopg.Connection) -> None: ...

    with pytest.raises(ConfigError, match="connection is an asynchronous connection; annotate AsyncConnection"):
        handler(wrong)


async def no_row() -> None: ...
async def only_named(*, row) -> None: ...
async def only_rest(**row) -> None: ...
async def context_first(context: Context, row) -> None: ...
async def ctx_first(ctx, row) -> None: ...
async def tx_first(tx, row) -> None: ...
async def needs_more(row, client: str) -> None: ...
async def needs_more_by_name(row, *, client) -> None: ...
async def twice(row, ctx, context: Context) -> None: ...
async def positional(row, ctx, /) -> None: ...
async def yields(row):
    yield To("x")


def yields_too(row):
    yield To("x")


async def number(row: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_row, "it has no parameter for the row"),
        (only_named, "its first parameter is 'row'; the row must come first"),
        (only_rest, "the row must come first"),
        (context_first, "its first parameter is .*context: .*Context.*; the row must come first"),
        (ctx_first, "the row must come first"),
        (tx_first, "the row must come first"),
        (needs_more, "nothing is known for its parameter .*client"),
        (needs_more_by_name, "nothing is known for its parameter 'client'"),
        (twice, "ctx and context ask for the same value"),
        (positional, "ctx is passed by name; put it after the /"),
        (yields, "it is a generator"),
        (yields_too, "it is a generator"),
        (number, "its row is annotated int"),
        (Upload, "is no function"),
        (None, "None is no function"),
        (classmethod(no_row), "is no function"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_when_declared(function: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^reconciler 'x': .*{message}"):
        handler(function)


@pytest.mark.parametrize("outcome", [To("x"), Stay(a=1), Delete(), Unchanged(), Again("1m")], ids=repr)
def test_an_outcome_is_what_it_is(outcome: Any) -> None:
    assert outcome_of(outcome) is outcome


@pytest.mark.parametrize(
    ("returned", "outcome"), [(None, Unchanged()), (Unchanged, Unchanged()), (Delete, Delete()), (Stay, Stay())]
)
def test_nothing_and_bare_classes_mean_something(returned: Any, outcome: Any) -> None:
    assert outcome_of(returned) == outcome


@pytest.mark.parametrize("returned", [42, "stored", True, False, To, Again, [To("x")], {}, Upload, object()])
def test_anything_else_that_was_returned_is_named(returned: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^reconciler 'x' returned .*: To, Stay, Delete, Unchanged, Again or nothing is needed"
    ):
        outcome_of(returned, "reconciler 'x'")


def test_a_long_answer_is_cut_short() -> None:
    with pytest.raises(TypeError) as raised:
        outcome_of("x" * 10_000)
    assert len(str(raised.value)) < 200


def test_an_error_that_was_returned_should_have_been_raised() -> None:
    with pytest.raises(TypeError, match=r"returned GiveUp\(.*; raise it"):
        outcome_of(GiveUp("gone"))


def test_a_coroutine_from_a_plain_function_is_named_and_leaves_no_warning() -> None:
    async def reconcile(row: Any) -> None: ...

    with pytest.raises(TypeError, match="make it an async def"):
        outcome_of(reconcile(1))
