from __future__ import annotations

import pickle
from typing import Any

import pytest

from trueup.errors import ConfigError
from trueup.reconcile.table import TableSpec, checked_identifier


def test_a_table_is_named_plainly_with_its_schema_or_as_a_pair() -> None:
    assert str(TableSpec.of("wallpapers", "id")) == "wallpapers"
    spec = TableSpec.of("app.payment_requests", "id")
    assert (spec.schema, spec.name, str(spec)) == ("app", "payment_requests", "app.payment_requests")
    spec = TableSpec.of(("my.schema", "my.table"), "id")
    assert (spec.schema, spec.name) == ("my.schema", "my.table")
    assert TableSpec.of((None, "my.table"), "id").schema is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "a.",
        ".a",
        "a.b.c",
        "a..b",
        "a\0",
        "\ud800",
        "ä" * 32,
        None,
        5,
        ("a",),
        ("a", "b", "c"),
        ("a", None),
        ("", "b"),
    ],
)
def test_what_cannot_be_a_table_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"^(table|schema) "):
        TableSpec.of(name, "id")


def test_names_are_limited_in_bytes_not_in_letters() -> None:
    assert TableSpec.of("ä" * 31 + "a", "ü" * 31).name == "ä" * 31 + "a"
    with pytest.raises(ConfigError, match="longer than PostgreSQL's 63 bytes"):
        TableSpec.of("a" * 64, "id")
    with pytest.raises(ConfigError, match="longer than PostgreSQL's 63 bytes"):
        TableSpec.of("t", "ü" * 32)


@pytest.mark.parametrize("name", ["select", "Upload State", 'quo"ted', "50%", "mit Umlaut ä", "x; drop table y"])
def test_any_other_name_is_taken_as_it_is(name: str) -> None:
    assert checked_identifier("column", name) == name
    assert TableSpec.of("t", name, state=f"{name}2").state == f"{name}2"


def test_a_key_is_one_column_or_several_in_order() -> None:
    assert TableSpec.of("t", "id").key == ("id",)
    assert TableSpec.of("t", ["tenant", "id"]).key == ("tenant", "id")
    for wrong in ((), [], "", ("",), (None,), ("id", "id"), None, 5, {"tenant", "id"}, ("id", 5), (["id"],)):
        with pytest.raises(ConfigError, match="table 't'"):
            TableSpec.of("t", wrong)  # type: ignore[arg-type]


def test_lease_columns_are_owner_and_until() -> None:
    assert TableSpec.of("t", "id", lease_columns=["owner", "until"]).lease_columns == ("owner", "until")
    for wrong in ("ab", (), ("owner",), ("a", "b", "c"), ("a", "a"), 5, ("a", None), {"a", "b"}):
        with pytest.raises(ConfigError, match="table 't'"):
            TableSpec.of("t", "id", lease_columns=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "id"},
        {"state": "s", "changed_at": "s"},
        {"changed_at": "c", "version": "c"},
        {"state": "s", "lease_columns": ("s", "until")},
        {"lease_columns": ("owner", "id")},
    ],
)
def test_a_column_cannot_play_two_parts(columns: Any) -> None:
    with pytest.raises(ConfigError, match=r"is named twice: \w+= and \w+="):
        TableSpec.of("t", "id", **columns)


@pytest.mark.parametrize("part", ["state", "changed_at", "version"])
@pytest.mark.parametrize("wrong", ["", "a\0", "a" * 64, 5, "\udfff"])
def test_what_cannot_be_a_column_is_refused(part: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"table 't': {part} column"):
        TableSpec.of("t", "id", **{part: wrong})


def test_a_condition_is_text() -> None:
    assert TableSpec.of("t", "id", where="provider = 'x'").where == "provider = 'x'"
    for wrong in ("", "  \n", "a\0", 5, True):
        with pytest.raises(ConfigError, match="where="):
            TableSpec.of("t", "id", where=wrong)  # type: ignore[arg-type]


def test_a_description_can_be_compared_and_sent_along() -> None:
    spec = TableSpec.of("a.t", ("x", "y"), state="s", lease_columns=("o", "u"))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert len({spec, TableSpec.of("a.t", ("x", "y"), state="s", lease_columns=("o", "u"))}) == 1
