from __future__ import annotations

from typing import Any

import pytest

from trueup import App, ConfigError
from trueup.reconcile.declare import DeclaredReconcilers, Table, table
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler


@pytest.fixture
def declared() -> DeclaredReconcilers:
    return DeclaredReconcilers()


@pytest.fixture
def things(declared: DeclaredReconcilers) -> Table:
    return named(declared, "things")


def named(declared: DeclaredReconcilers, name: Any, **given: Any) -> Table:
    parts = {"key": "id", "state": "state", "changed_at": "changed_at", "version": None, **given}
    return table(
        declared.add,
        name,
        parts["key"],
        parts["state"],
        parts["changed_at"],
        parts["version"],
        parts.get("lease_columns"),
        parts.get("where"),
    )


def test_the_function_stays_what_it_is_and_gives_its_name(declared: DeclaredReconcilers, things: Table) -> None:
    @things.reconcile("new", stale_for="10m")
    def fix(row: Any) -> str:
        return f"{row} fixed"

    assert fix("it") == "it fixed"
    made = declared.get("fix")
    assert isinstance(made, Reconciler)
    assert made.handler.function is fix
    assert declared.names() == ["fix"]
    assert declared.all() == [made]


def test_two_of_one_name_are_refused_and_name_tells_them_apart(declared: DeclaredReconcilers, things: Table) -> None:
    def fix(row: Any) -> None: ...

    things.reconcile("new")(fix)
    with pytest.raises(ConfigError, match="'fix' is declared twice; give one of them name="):
        things.reconcile("old")(fix)
    things.reconcile("old", name="fix-old")(fix)
    assert declared.names() == ["fix", "fix-old"]


def test_annotations_that_are_only_known_where_it_is_declared_are_found(
    declared: DeclaredReconcilers, things: Table
) -> None:
    from dataclasses import dataclass

    @dataclass
    class Thing:
        id: int

    @things.reconcile("new")
    def fix(thing: Thing) -> None: ...

    made = declared.get("fix")
    assert isinstance(made, Reconciler)
    assert made.handler.shape.title == "Thing"


def test_moves_and_deletions_are_named_by_what_they_do(declared: DeclaredReconcilers, things: Table) -> None:
    things.delete("new", stale_for="1h")
    things.move("trial", "odd state!", to="expired", stale_for="14d", set={"n": 1})
    assert declared.names() == ["delete-things-new", "move-things-trial-odd_state_"]
    move = declared.get("move-things-trial-odd_state_")
    assert isinstance(move, Purge)
    assert (move.to, move.columns) == ("expired", {"n": 1})


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda t: t.delete("new"), "give stale_for= or due_at="),
        (lambda t: t.move("new", to="old"), "give stale_for= or due_at="),
        (lambda t: t.move("new", to="new", stale_for="1h"), "it would never end"),
        (lambda t: t.delete("new", stale_for="1h", max_fraction=0), "max_fraction=0"),
        (lambda t: t.delete("new", stale_for="1h", max_fraction=1.5), "max_fraction=1.5"),
        (lambda t: t.move("new", to="old", stale_for="1h", set={"id": 5}), "set= names 'id'"),
        (lambda t: t.move("new", to="old", stale_for="1h", set={"state": "x"}), "set= names 'state'"),
        (lambda t: t.delete("new", stale_for="1h", batch=0), "batch=0"),
        (lambda t: t.delete("new", stale_for="1h", name="no blanks"), "no blanks"),
        (lambda t: t.reconcile(name="fix")(lambda row: None), "name its states"),
        (lambda t: t.reconcile("new")(7), "is no function"),
    ],
)
def test_what_cannot_be_is_refused(things: Table, declare: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        declare(things)
    assert said in str(raised.value)


def test_rows_of_a_table_without_states_cannot_be_moved(declared: DeclaredReconcilers) -> None:
    stateless = named(declared, "things", state=None)
    with pytest.raises(ConfigError, match="declared without state=, so rows cannot be moved"):
        stateless.move(to="old", stale_for="1h")
    stateless.delete(stale_for="1h")
    assert declared.names() == ["delete-things"]


def test_a_plain_table_needs_a_key(declared: DeclaredReconcilers) -> None:
    with pytest.raises(ConfigError, match="key= is needed"):
        named(declared, "things", key=None)


def test_two_reconcilers_of_a_table_may_not_share_a_working_state() -> None:
    app = App("postgresql://nowhere/x")
    table = app.table("things", key="id", state="state")
    table.reconcile("new", due_at="due_at", claimed_as="busy", name="one")(lambda row: None)
    app.table("others", key="id", state="state").reconcile("new", claimed_as="busy", name="elsewhere")(lambda row: None)
    with pytest.raises(ConfigError, match="'two': claimed_as='busy' is also the working state of 'one'"):
        table.reconcile("old", due_at="due_at", claimed_as="busy", name="two")(lambda row: None)


def test_working_state_is_another_name_for_claimed_as(app: App) -> None:
    table = app.table("t", key="id", state="state")
    table.reconcile("new", working_state="busy", name="one")(lambda row: None)
    declared = app._reconcilers.get("one")
    assert declared is not None
    assert declared.selection.claimed_as == "busy"
    with pytest.raises(ConfigError, match="working_state= and claimed_as= are the same; give one of them"):
        table.reconcile("new", working_state="a", claimed_as="a", name="two")(lambda row: None)
