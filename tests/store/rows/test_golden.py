"""Every composed statement, as PostgreSQL gets it, is kept in a file: so that people can read it, and see what a change does to it.

`GOLDEN_FILES=write` writes the files anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.store.rows_desk import RowsDesk, desk_on
from trueup.store.rows.rows import Rows
from trueup.store.store import Store

pytestmark = pytest.mark.asyncio

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("GOLDEN_FILES") == "write"

PLAIN = "create table t (id bigint primary key, state text not null, note text)"
EVERYTHING = """
create type stage as enum ('new', 'working', 'done');
create table t (tenant uuid, id text, state stage not null, changed_at timestamp not null, due_at timestamptz, version int not null,
                owner text, until timestamptz, amount numeric(12, 2), primary key (tenant, id))
"""
WITH_EVERYTHING: Mapping[str, Any] = {
    "key": ("tenant", "id"),
    "spec": {
        "changed_at": "changed_at",
        "version": "version",
        "lease_columns": ("owner", "until"),
        "where": "amount > 0",
    },
    "claimed_as": "working",
    "order_by": "due_at",
    "due_at": "due_at",
}

STATEMENTS: Mapping[str, Callable[[Rows], bytes]] = {
    "claim_fresh_start": lambda rows: rows.composer.claim_fresh("start"),
    "claim_fresh_with": lambda rows: rows.composer.claim_fresh("with"),
    "claim_fresh_guarded": lambda rows: replace(rows.composer, guarded=True).claim_fresh("start"),
    "candidates": lambda rows: replace(rows.composer, guarded=True).candidates("with"),
    "evaluate": lambda rows: rows.composer.evaluate(),
    "readable": lambda rows: rows.composer.readable(),
    "claim_again": lambda rows: rows.composer.claim_again(),
    "mark": lambda rows: rows.composer.mark(),
    "change": lambda rows: rows.composer.change(()),
    "change_a_column": lambda rows: rows.composer.change((_free_column(rows),)),
    "remove": lambda rows: rows.composer.remove(),
    "put_back": lambda rows: rows.composer.put_back(),
    "renew_both": lambda rows: rows.composer.renew_both(),
    "forget": lambda rows: rows.composer.forget(),
    "lock": lambda rows: rows.composer.lock(),
    "locked_out": lambda rows: rows.composer.locked_out(),
    "change_locked": lambda rows: rows.composer.change_locked(()),
    "change_alone": lambda rows: rows.composer.change_alone(()),
    "remove_locked": lambda rows: rows.composer.remove_locked(),
    "remove_alone": lambda rows: rows.composer.remove_alone(),
    "waiting": lambda rows: rows.composer.waiting(),
    "listed": lambda rows: rows.composer.listed(values=True),
}
NEEDS_MARKS = {"mark", "put_back", "renew_both"}  # claims that write to the user's row


def _free_column(rows: Rows) -> str:
    return "amount" if "amount" in rows.found.columns else "note"


async def _plain(desk: RowsDesk) -> Rows:
    await desk.run(PLAIN)
    return await desk.rows("new")


async def _everything(desk: RowsDesk) -> Rows:
    for statement in EVERYTHING.strip().rstrip(";").split(";\n"):
        await desk.run(statement)
    return await desk.rows("new", **WITH_EVERYTHING)


@pytest.mark.parametrize("make", [_plain, _everything], ids=["plain", "everything"])
async def test_composed_statements_are_as_in_their_files(
    store: Store, request: pytest.FixtureRequest, make: Callable[[RowsDesk], Any]
) -> None:
    directory = GOLDEN / request.node.callspec.id
    async with desk_on(store) as desk:
        rows = await make(desk)
    wanted = {name: compose for name, compose in STATEMENTS.items() if rows.marks_rows or name not in NEEDS_MARKS}
    composed = {name: compose(rows).decode() for name, compose in wanted.items()}
    if WRITE:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in composed.items():
            (directory / f"{name}.sql").write_text(text.rstrip() + "\n", "utf-8")
    kept = {file.stem: file.read_text("utf-8") for file in directory.glob("*.sql")}
    assert {name: text.rstrip() + "\n" for name, text in composed.items()} == kept
