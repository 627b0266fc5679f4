from __future__ import annotations

import re

import pytest

from trueup.store.db.load import Statements, compose, names, source
from trueup.store.db.migrate import all_steps

EVERY = list(names())
FIXED = {"schema", "carried", "priorities", "bytes", "taken", "now", "rested"}


@pytest.mark.parametrize("name", EVERY)
def test_every_statement_can_be_composed_and_names_no_schema_itself(name: str) -> None:
    text = source(name)
    assert not re.search(r"\btrueup\s*\.", re.sub(r"--.*", "", text))
    if set(re.findall(r"\{(\w+)\}", text)) - FIXED:
        return  # composed with names that are known at run time: days of history, users' tables
    assert b"{" not in Statements("other")[name]


@pytest.mark.parametrize("name", EVERY)
def test_every_statement_file_holds_what_its_folder_and_name_promise(name: str) -> None:
    assert re.fullmatch(r"[a-z]+/[a-z_]+", name)
    assert source(name).rstrip().endswith(";")


def test_statements_can_be_sent_to_a_database_of_any_encoding() -> None:
    """Comments go to the server, too, and a database in LATIN1 has no word for an ellipsis."""
    steps = {step.name: compose(step.text, "trueup") for step in all_steps()}
    assert [name for name in EVERY if not source(name).isascii()] == []
    assert [name for name, text in steps.items() if not text.isascii()] == []


def test_a_schema_is_quoted_as_an_identifier() -> None:
    assert b'from "My ""odd"" schema".jobs' in Statements('My "odd" schema')["jobs/find_unique"]


def test_schemas_have_channels_of_their_own() -> None:
    assert Statements("a").channel != Statements("b").channel
