"""The table of promises names statements, guards, tests and mutants that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.model.protocols import PROTOCOLS
from tools.mutants import mutants

PAGE = (DOCS / "explanation/guarantees.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## The mechanism behind each promise")[2].splitlines()
    if line.startswith("| ") and not line.startswith(("| promise ", "| --- "))
]
KNOWN = (
    lambda name: (ROOT / "src/trueup" / name).is_file(),
    {guard.name for protocol in PROTOCOLS for guard in protocol.guards}.__contains__,
    lambda name: (ROOT / name).is_file(),
    {mutant.id for mutant in mutants()}.__contains__,
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_a_promise_rests_on_exists(row: list[str]) -> None:
    _, *columns, not_promised = row
    assert len(columns) == len(KNOWN)
    assert not_promised, "it does not say what is not promised"
    named = [re.findall(r"`([^`]+)`", column) for column in columns]
    missing = [name for known, names in zip(KNOWN, named, strict=True) for name in names if not known(name)]
    assert missing == []
    assert named[2], "no test is named"
    assert named[3], "no mutant is named"


def test_there_are_promises() -> None:
    assert len(ROWS) > 10
