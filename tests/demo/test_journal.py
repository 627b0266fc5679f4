from __future__ import annotations

import json
from pathlib import Path

import pytest

from apps.birthdays.sink import Sink
from trueup.demo.journal import Arrival, Journal


def journal_of(*arrivals: Arrival) -> Journal:
    journal = Journal(Path("nowhere"))
    for arrival in arrivals:
        journal._add(arrival)
    return journal


def arrival(key: str, at: float = 0.0, digest: str = "d", *, unwanted: bool = False) -> Arrival:
    return Arrival(key, at, digest, "Hey", unwanted)


def post(sink: Sink, key: str, message: str = "Hey") -> int:
    body = {"message": message, "idempotencyKey": key}
    return sink.take({"idempotency-key": key}, json.dumps(body).encode(), body)


def test_what_the_receiver_has_taken_is_read_on_from_where_we_were(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal, sink = Journal(path), Sink(journal=path, unwanted=["Nobody"])
    journal.refresh()
    assert journal.arrivals == []
    assert [post(sink, "a"), post(sink, "b", "Hey, Nobody")] == [200, 422]
    journal.refresh()
    assert post(sink, "c", "🎂\n") == 200
    with path.open("ab") as file:
        file.write(b'{"key": "only just being wri')
    journal.refresh()
    journal.refresh()
    assert [(each.key, each.message, each.unwanted) for each in journal.arrivals] == [
        ("a", "Hey", False), ("b", "Hey, Nobody", True), ("c", "🎂\n", False)
    ]  # fmt: skip
    assert journal.keys == {"a", "c"}


def test_a_receiver_that_was_killed_knows_what_it_had_taken(tmp_path: Path) -> None:
    before = Sink(journal=tmp_path / "journal", unwanted=["Nobody"])
    assert [post(before, "a"), post(before, "b"), post(before, "c", "Nobody")] == [200, 200, 422]
    after = Sink(journal=tmp_path / "journal")
    assert post(after, "a") == 200
    assert post(after, "b", "something else") == 200
    assert after.counts() == {"received": 4, "delivered": 2, "again": 2, "changed": 1, "refused": 1}
    assert after.order == ["a", "b"]


def test_a_message_that_came_again_is_no_new_one() -> None:
    journal = journal_of(arrival("a"), arrival("b"), arrival("a"), arrival("c", unwanted=True))
    assert (journal.again(), journal.changed(), list(journal.first())) == (1, 0, ["a", "b"])


def test_another_body_under_the_same_key_is_noticed() -> None:
    assert journal_of(arrival("a"), arrival("a", digest="other")).changed() == 1


def test_the_busiest_stretch_is_found_wherever_it_is() -> None:
    slow = [arrival(f"s{n}", at=float(n)) for n in range(20)]
    burst = [arrival(f"b{n}", at=30 + n / 10) for n in range(100)]
    assert journal_of(*slow, *burst).busiest(10.0) == 10.0
    assert journal_of(*slow).busiest(10.0) == pytest.approx(1.1)
    assert journal_of().busiest(10.0) == 0.0


def test_who_was_overtaken_is_counted_and_equals_have_no_order() -> None:
    due = {"a": 1, "b": 2, "b2": 2, "c": 3, "d": 4}
    assert journal_of(*map(arrival, ["a", "b2", "b", "c", "d"])).overtaken(due) == 0
    assert journal_of(*map(arrival, ["a", "c", "b", "b2", "d"])).overtaken(due) == 2
    assert journal_of(*map(arrival, ["d", "a", "b", "c", "not due"])).overtaken(due) == 3
