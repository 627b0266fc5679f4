from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import count, repeat
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, computed_field

from trueup.errors import DuplicateJob, InvalidArguments
from trueup.jobs.arguments import Arguments
from trueup.jobs.payload import MAX_DEPTH, MAX_DIGITS, encode_result

LIMIT = 1_000_000


@dataclass
class Point:
    x: float
    note: str = ""


@dataclass(slots=True)
class Slim:
    x: float


class Model(BaseModel):
    ratio: float | None


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "result: nan is not a JSON number"),
        ({"a": [1, float("inf")]}, "result.a[1]: inf is not a JSON number"),
        ({"a": {"b": -float("inf")}}, "result.a.b: -inf is not a JSON number"),
        (["fine", "a\x00b"], "result[1]: text with a NUL"),
        ({"a\x00b": 1}, "text with a NUL"),
        (("x\ud800",), "result[0]: text with a lone surrogate at position 1"),
        ({"\udfff": 1}, "lone surrogate"),
        ([10**5000], f"result[0]: an integer of more than {MAX_DIGITS} digits"),
        (-(10**MAX_DIGITS), f"result: an integer of more than {MAX_DIGITS} digits"),
        ({"a": object()}, "result.a: object cannot be stored as JSON"),
        ([lambda: 1], "result[0]: function cannot be stored as JSON"),
        (Point(float("nan")), "result.x: nan is not a JSON number"),
        ({"slim": Slim(float("inf"))}, "result.slim.x: inf is not a JSON number"),
        ([Point(1, "\x00")], "result[0].note: text with a NUL"),
        (nested(10_000), f"nested more than {MAX_DEPTH} levels deep"),
        (nested(MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} levels deep"),
        (Model(ratio=float("nan")), "result.ratio: nan is not a JSON number"),
        ("x" * LIMIT, "1,000,002 bytes of JSON are over the limit of 1,000,000 (TRUEUP_PAYLOAD_LIMIT)"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 80 else "",
)
def test_what_jsonb_cannot_hold_is_refused_by_its_place(value: Any, message: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        encode_result(value, LIMIT)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidArguments):
        encode_result(loop, LIMIT)


def shared(levels: int) -> Any:
    """Lists of ten items that are the same list, as YAML's aliases make them."""
    value: list[Any] = [1] * 10
    for _ in range(levels):
        value = [value] * 10
    return value


ENDLESS: dict[str, Callable[[], Any]] = {
    "an iterator": count,
    "an iterator in a list": lambda: [1, repeat("x")],
    "a generator in a mapping": lambda: {"a": {"b": (n for n in count())}},
    "iterators of iterators": lambda: repeat(repeat(1)),
    "lists in lists": lambda: shared(30),
    "mappings in mappings": lambda: {"a": shared(30), "b": shared(30)},
}


@pytest.mark.parametrize("make", ENDLESS.values(), ids=ENDLESS)
def test_a_result_without_end_is_refused_before_it_fills_the_memory(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArguments, match="result: more than 100,000 parts are over the limit"):
        encode_result(make(), 100_000)


@pytest.mark.parametrize(
    ("make", "stored"),
    [
        (lambda: map(str, range(3)), ["0", "1", "2"]),
        (lambda: {"a": [iter("xy"), 1], "b": (n for n in (1, 2))}, {"a": [["x", "y"], 1], "b": [1, 2]}),
        (lambda: ([], (1, iter(())), {}), [[], [1, []], {}]),
        (lambda: shared(2), shared(2)),
    ],
)
def test_iterators_that_end_and_lists_that_are_in_several_places_are_stored(
    make: Callable[[], Any], stored: Any
) -> None:
    assert json.loads(encode_result(make(), LIMIT)) == stored


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1.5,
        "",
        "NaN",
        "null",
        r"\u0000",
        r"\ud800",
        "🐎",
        10**MAX_DIGITS - 1,
        "9" * 5000,
        nested(MAX_DEPTH),
    ],
    ids=lambda value: f"{type(value).__name__} {str(value)[:10]}",
)
def test_text_that_only_looks_suspicious_is_stored_as_it_is(value: Any) -> None:
    assert json.loads(encode_result(value, LIMIT)) == value


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
finite = st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | finite | text
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20)


@given(values)
def test_any_json_without_nul_and_surrogates_comes_back_equal(value: Any) -> None:
    assert json.loads(encode_result(value, LIMIT)) == value


@given(values, st.sampled_from(["\x00", "\ud800", float("nan"), float("-inf"), 10**5000]))
def test_one_bad_value_anywhere_is_found(value: Any, bad: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"^result\.place\[1\]: "):
        encode_result({"before": value, "place": [value, bad], "after": value}, LIMIT)


class Colour(Enum):
    ODD = "a\x00b"
    RED = "red"


class Computed(BaseModel):
    @computed_field
    def name(self) -> str:
        return "a\x00b"

    @computed_field
    def ratio(self) -> float:
        return float("nan")


class Shape(BaseModel):
    colours: dict[Colour, int] = {}
    ratios: dict[float, int] = {}


class Text(str):
    """Of a library that marks its texts."""


CANNOT_BE_STORED: list[tuple[Callable[[], Any], str]] = [
    (lambda: {Colour.ODD: 1}, "NUL"),
    (lambda: {"a": {Colour.ODD: 1}}, "NUL"),
    (lambda: Shape(colours={Colour.ODD: 1}), "colours"),
    (lambda: [Colour.ODD], "[0]"),
    (Computed, "NUL"),
    (lambda: {"deep": [Computed()]}, "deep[0].name"),
    (lambda: Path("a\x00b"), "NUL"),
    (lambda: {"p": Path("a\x00b")}, ".p: text with a NUL"),
    (lambda: (each for each in ["fine", "a\x00b"]), "[1]: text with a NUL"),
    (lambda: {"g": (each for each in [1.0, float("nan")])}, ".g[1]: nan"),
    (lambda: (each for each in [{"x": float("inf")}]), "[0].x: inf"),
    (lambda: Text("a\x00b"), "NUL"),
    (lambda: {Path("a\x00b"): 1}, "NUL"),
    (lambda: deque(["a\x00b"]), "[0]: text with a NUL"),
    (lambda: {1: "a", "1": "b"}, ".1: two keys"),
    (lambda: {"a": {1: "a", "1": "b"}}, ".a.1: two keys"),
    (lambda: [[{True: 1, "true": 2}]], "[0][0].true: two keys"),
    (lambda: {None: 1, "None": 2}, "two keys"),
    (lambda: {Colour.RED: 1, "red": 2}, "red: two keys"),
    (lambda: {1.5: 1, "1.5": 2}, "two keys"),
    (lambda: {UUID(int=1): 1, str(UUID(int=1)): 2}, "two keys"),
    (lambda: {"x" * 20_000_000: "\x00"}, "NUL"),
    (lambda: {"x" * 20_000_000: object()}, "cannot be stored"),
]


@pytest.mark.parametrize(("make", "message"), CANNOT_BE_STORED)
def test_whatever_its_json_cannot_hold_is_refused_with_its_place(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        encode_result(make(), 100_000_000)
    assert message in str(raised.value)
    assert str(raised.value).startswith("result")
    assert len(str(raised.value)) < 2_000

    def handler(given: Any) -> None: ...

    arguments = Arguments("send", handler)
    with pytest.raises(InvalidArguments) as raised:
        arguments.dump(arguments.bind([make()], {}), 100_000_000)
    assert str(raised.value).startswith("send.given")
    assert message in str(raised.value)
    assert len(str(raised.value)) < 2_000


@pytest.mark.parametrize("value", [{1: "a", 2: "b"}, {"a": {"x": 1}, "b": {"x": 1}}, [{"x": 1}, {"x": 1}], {"a{": 1}])
def test_keys_that_differ_are_stored(value: Any) -> None:
    assert len(json.loads(encode_result(value, LIMIT))) == len(value)


def test_errors_that_quote_huge_texts_are_short() -> None:
    for error in (InvalidArguments("x" * 20_000_000), DuplicateJob("kind", "k" * 20_000_000, 1, "queued")):
        assert len(str(error).encode()) < 50_000
