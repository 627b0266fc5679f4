from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from trueup.errors import ConfigError, InvalidArguments
from trueup.jobs.arguments import Arguments
from trueup.jobs.context import Context, injected

LIMIT = 100_000


class Colour(enum.Enum):
    RED = "red"


class Address(BaseModel):
    street: str
    number: int = Field(gt=0)


@dataclass
class Parcel:
    to: Address
    weight: Decimal
    tags: set[str]


def arguments(function: Callable[..., Any]) -> Arguments:
    return Arguments("send", function)


def send(to: str, times: int = 1, *, urgent: bool = False) -> None: ...


def round_trip(taken: Arguments, *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    return taken.load(taken.dump(taken.bind(args, kwargs), LIMIT))


def test_arguments_come_back_by_name_and_defaults_are_left_to_the_function() -> None:
    assert round_trip(arguments(send), "a") == ([], {"to": "a"})
    assert round_trip(arguments(send), "a", urgent=True, times=2) == ([], {"to": "a", "times": 2, "urgent": True})


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "send: to: is missing"),
        (("a", 1, True), {}, "send: takes 2 positional arguments, 3 were given"),
        (("a",), {"to": "b"}, "send: argument 'to' was given twice"),
        (("a",), {"when": 1}, "send: when: is not one of its arguments"),
        (
            ("a",),
            {"tx": None},
            "tx: is an option and not one of its arguments; write job.using(tx=…).enqueue(…)",
        ),
        (("a", "many"), {}, "send: times: Input should be a valid integer"),
        ((1,), {}, "send: to: Input should be a valid string"),
        ((), {"times": "x", "urgent": []}, "to: is missing; times: "),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArguments) as refused:
        arguments(send).bind(args, kwargs)
    assert message in str(refused.value)


def test_a_refusal_does_not_quote_the_value_which_may_be_a_secret() -> None:
    with pytest.raises(InvalidArguments) as refused:
        arguments(send).bind(["a"], {"times": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_positional_only_arguments_come_back_as_positions() -> None:
    def pair(left: int, right: int = 2, /, *, note: str = "") -> None: ...

    assert round_trip(arguments(pair), 1) == ([1], {})
    assert round_trip(arguments(pair), 1, 3, note="x") == ([1, 3], {"note": "x"})


def test_a_context_is_not_an_argument_wherever_it_stands() -> None:
    def first(ctx: Context, to: str) -> None: ...
    def last(to: str, *, ctx: Context = injected) -> None: ...
    def maybe(to: str, ctx: Context | None = None) -> None: ...

    for function in (first, last, maybe):
        taken = arguments(function)
        assert taken.context == "ctx"
        assert taken.names == ("to",)
        assert round_trip(taken, "a") == ([], {"to": "a"})


def test_a_parameter_without_annotation_takes_any_json() -> None:
    def loose(value, other=None) -> None: ...  # type: ignore[no-untyped-def]

    assert round_trip(arguments(loose), {"a": [1, None]}) == ([], {"value": {"a": [1, None]}})


def test_variable_parameters_are_refused_when_the_job_is_declared() -> None:
    def many(*values: int) -> None: ...
    def named(**values: int) -> None: ...

    for function in (many, named):
        with pytest.raises(ConfigError, match=r"job 'send': \*+values.* cannot be stored; name each argument"):
            arguments(function)


def test_what_a_worker_would_have_to_know_is_named_with_what_to_write() -> None:
    class Mailer:
        def send(self, to): ...  # type: ignore[no-untyped-def]

    with pytest.raises(ConfigError, match=r"first parameter is 'self', .*; declare a function outside the class"):
        arguments(Mailer.send)

    def decorated(*args, **kwargs): ...  # type: ignore[no-untyped-def]

    with pytest.raises(ConfigError, match=r"\*args cannot be stored; .* decorator .* functools\.wraps"):
        arguments(decorated)

    def send(ctx, to): ...  # type: ignore[no-untyped-def]

    with pytest.raises(
        InvalidArguments, match=r"to: is missing; for the worker to fill in ctx, annotate it: ctx: Context$"
    ):
        arguments(send).bind(["ada"], {})


def test_a_type_that_json_cannot_express_is_refused_when_the_job_is_declared() -> None:
    class Connection: ...

    def bad(number: int, to: Connection) -> None: ...

    with pytest.raises(
        ConfigError, match="the type of argument 'to' cannot be stored as JSON: pass an id instead, or make"
    ):
        Arguments("send", bad, {"Connection": Connection})


def test_an_annotation_that_names_nothing_is_refused_when_the_job_is_declared() -> None:
    def bad(to: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigError, match="job 'send': annotation cannot be resolved: name 'Nowhere'"):
        arguments(bad)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (bytes, b"\x00\xff\xfe"),
        (datetime, datetime(2026, 6, 1, 12, 30, 15, 123456, UTC)),
        (date, date(2026, 2, 28)),
        (timedelta, timedelta(days=400, microseconds=1)),
        (Decimal, Decimal("1234567890.123456789012345678901234567890")),
        (UUID, UUID(int=2**127 + 1)),
        (Colour, Colour.RED),
        (Literal["a", "b"], "b"),
        (Address, Address(street="Lane", number=3)),
        (Parcel, Parcel(Address(street="Lane", number=3), Decimal("0.10"), {"x", "y"})),
        (list[tuple[int, str]], [(1, "a"), (2, "b")]),
        (dict[str, float], {"a": 0.1, "b": 1e300}),
        (set[int], {1, 2}),
        (int | str | None, None),
        (int | str | None, "5"),
        (int, 2**80),
        (float, 0.1 + 0.2),
    ],
)
def test_typed_values_come_back_as_they_went_in(kind: Any, value: Any) -> None:
    def typed(value: Any) -> None: ...

    typed.__annotations__["value"] = kind
    _, loaded = round_trip(arguments(typed), value)
    assert loaded == {"value": value}
    assert type(loaded["value"]) is type(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [float("nan")]}, "send.value.a[0]: nan is not a JSON number"),
        ({"a": {"b": "\x00"}}, "send.value.a.b: text with a NUL"),
        (["\ud800"], "send.value[0]: text with a lone surrogate"),
        ([10**5000], "send.value[0]: an integer of more than 4300 digits"),
        ({"a": object()}, "send.value.a: object cannot be stored as JSON"),
        ("x" * LIMIT, "bytes of JSON are over the limit of 100,000 (TRUEUP_PAYLOAD_LIMIT)"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_place(value: Any, message: str) -> None:
    def loose(value: Any) -> None: ...

    taken = arguments(loose)
    with pytest.raises(InvalidArguments) as refused:
        taken.dump(taken.bind([value], {}), LIMIT)
    assert message in str(refused.value)


def test_arguments_nested_10000_deep_are_refused() -> None:
    def loose(value: Any) -> None: ...

    value: Any = 1
    for _ in range(10_000):
        value = {"a": value}
    taken = arguments(loose)
    with pytest.raises(InvalidArguments, match="nested more than"):
        taken.dump(taken.bind([value], {}), LIMIT)


class Reading(BaseModel):
    degrees: float | None


def test_a_nan_in_a_typed_argument_is_refused_too() -> None:
    def typed(values: list[float], reading: Reading | None = None) -> None: ...

    taken = arguments(typed)
    with pytest.raises(InvalidArguments, match=r"send\.values\[1\]: nan"):
        taken.dump(taken.bind([[1.0, float("nan")]], {}), LIMIT)
    with pytest.raises(InvalidArguments, match=r"send\.reading\.degrees: inf"):
        taken.dump(taken.bind([[], Reading(degrees=float("inf"))], {}), LIMIT)


@pytest.mark.parametrize("depth", [199, 200, 254, 255])
def test_nested_arguments_are_refused_or_can_be_read_back(depth: int) -> None:
    def loose(value: Any) -> None: ...

    value: Any = 1
    for _ in range(depth):
        value = [value]
    taken = arguments(loose)
    try:
        stored = taken.dump(taken.bind([value], {}), LIMIT)
    except InvalidArguments:
        assert depth >= 200
    else:
        assert taken.load(stored) == ([], {"value": value})


@pytest.mark.parametrize("stored", ["{}", '{"to": 1}', '{"to": "a", "gone": 1}', "[]", '"a"', "nonsense"])
def test_stored_arguments_that_no_longer_fit_are_refused_when_the_job_is_run(stored: str) -> None:
    with pytest.raises(InvalidArguments, match=r"^send: "):
        arguments(send).load(stored)


@dataclass
class Everything:
    number: int
    ratio: float
    text: str
    raw: bytes
    when: datetime
    price: Decimal
    key: UUID
    colour: Colour
    tags: list[str]
    extra: dict[str, int | None]


storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


@given(
    st.builds(
        Everything,
        number=st.integers(-(2**100), 2**100),
        ratio=st.floats(allow_nan=False, allow_infinity=False),
        text=storable,
        raw=st.binary(),
        when=st.datetimes(timezones=st.just(UTC)),
        price=st.decimals(allow_nan=False, allow_infinity=False),
        key=st.uuids(),
        colour=st.just(Colour.RED),
        tags=st.lists(storable),
        extra=st.dictionaries(storable, st.none() | st.integers()),
    )
)
def test_any_value_of_the_supported_types_survives_the_round_trip(value: Everything) -> None:
    def typed(value: Everything) -> None: ...

    assert round_trip(arguments(typed), value) == ([], {"value": value})
