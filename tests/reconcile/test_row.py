from __future__ import annotations

import copy
import pickle

import pytest

from trueup.reconcile.row import Row


def test_a_column_is_an_attribute_and_an_item() -> None:
    row = Row({"id": 1, "upload_state": "stored"})
    assert (row.id, row["id"], row.upload_state) == (1, 1, "stored")
    assert dict(row) == {"id": 1, "upload_state": "stored"}
    assert (list(row.keys()), next(iter(row.items())), len(row)) == (["id", "upload_state"], ("id", 1), 2)
    assert row.get("nothing") is None


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    row = Row({"id": 1, "upload_state": "stored"})
    assert not hasattr(row, "uplod_state")
    with pytest.raises(AttributeError, match="no column 'uplod_state'; it has id, upload_state"):
        _ = row.uplod_state
    with pytest.raises(KeyError):
        _ = row["uplod_state"]


@pytest.mark.parametrize(
    "column", ["keys", "values", "items", "get", "_values", "__class__", "self", "", "mit Umlaut ä"]
)
def test_a_column_of_any_name_can_be_had_as_an_item(column: str) -> None:
    row = Row({column: 1, "id": 2})
    assert (row[column], row.id, dict(row)) == (1, 2, {column: 1, "id": 2})
    assert list(row.keys()) == [column, "id"]
    assert pickle.loads(pickle.dumps(row)) == row


def test_a_row_cannot_be_changed() -> None:
    row = Row({"id": 1})
    with pytest.raises(AttributeError, match=r"read-only; return Stay\(id=…\)"):
        row.id = 2
    with pytest.raises(AttributeError, match="read-only"):
        del row.id
    with pytest.raises(AttributeError, match="read-only"):
        del row._values
    with pytest.raises(TypeError):
        row["id"] = 2  # type: ignore[index]
    assert row.id == 1


def test_a_row_does_not_follow_what_it_was_made_of() -> None:
    values = {"id": 1}
    row = Row(values)
    values["id"] = 2
    assert row.id == 1


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda row: pickle.loads(pickle.dumps(row))])
def test_a_row_can_be_copied_and_sent_to_another_process(again) -> None:
    row = Row({"id": 1, "tags": ["a"]})
    other = again(row)
    assert (type(other), other, other.tags) == (Row, row, ["a"])


def test_a_deep_copy_shares_nothing() -> None:
    row = Row({"tags": ["a"]})
    copy.deepcopy(row)["tags"].append("b")
    assert row.tags == ["a"]


def test_rows_compare_by_value_with_any_mapping() -> None:
    assert Row({"id": 1}) == {"id": 1} == Row({"id": 1})
    assert Row({"id": 1}) != Row({"id": 2})


def test_a_row_shows_its_values_and_matches_patterns() -> None:
    row = Row({"id": 1, "state": "stored"})
    assert repr(row) == "Row(id=1, state='stored')"
    match row:
        case {"state": "stored", "id": number}:
            assert number == 1
        case _:
            pytest.fail("a row is a mapping")
