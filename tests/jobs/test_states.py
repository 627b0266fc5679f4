"""One life, told in four places: the table in Python, the statements, the database's constraints, and the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from trueup import events
from trueup.jobs.states import FINAL, LIVE, MOVES, JobState
from trueup.store.db.load import names, source
from trueup.store.jobs import Jobs

PAGE = Path(__file__).parents[2] / "docs/reference/states.md"
PAST = {
    "claim": "claimed",
    "complete": "completed",
    "retry": "retried",
    "snooze": "snoozed",
    "release": "released",
    "defer": "deferred",
    "rescue": "rescued",
    "bury": "buried",
    "drop": "dropped",
    "cancel": "cancelled",
    "revive": "revived",
    "discard": "discarded",
}

Moves = dict[str, tuple[str, str]]


def moves_of_statements() -> Moves:
    """What each file says in its first line, of those that lead from one state to another."""
    moves = {}
    for name in names():
        first = source(name).partition("\n")[0]
        found = re.match(r"-- (\w+): (\w+) -> (\w+)", first)
        if name.startswith("jobs/") and found and found[2] not in ("nothing", found[3]):
            assert found[1] == name.removeprefix("jobs/"), f"{name}.sql calls itself {found[1]}"
            moves[found[1]] = (found[2], found[3])
    return moves


def table() -> list[list[str]]:
    rows = [line.strip("|\n").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def states_allowed(url: str, constraint: str) -> set[str]:
    with psycopg.connect(url) as connection:
        query = "select pg_get_constraintdef(oid) from pg_constraint where conname = %s and conparentid = 0"
        row = connection.execute(query, [constraint]).fetchone()
    assert row is not None
    return set(re.findall(r"'(\w+)'", row[0]))


def test_every_move_is_one_statement_and_no_other_statement_moves_a_job() -> None:
    assert moves_of_statements() == MOVES


def test_the_diagram_shows_the_moves() -> None:
    drawn = " ".join(re.findall(r">([^<]*)</text>", (PAGE.parent.parent / "assets/states.svg").read_text("utf-8")))
    assert set(re.findall(r"\w+", drawn)) == {*MOVES, *JobState, "enqueue"}


def test_the_table_in_the_documentation_lists_the_moves_and_their_events() -> None:
    told = {row[0]: (row[1], row[2], row[-1]) for row in table()}
    assert told == {move: (*states, f"`job.{PAST[move]}`") for move, states in MOVES.items()}


def test_the_fences_in_the_documentation_are_those_the_statements_name() -> None:
    for row in table():
        fenced = "Fence: (id, holder, term)" in source(f"jobs/{row[0]}")
        assert (row[4] == "id, holder, term") == fenced, row[0]


@pytest.mark.parametrize(("constraint", "expected"), [("jobs_state", LIVE), ("history_state", FINAL)])
def test_the_database_allows_exactly_these_states(database_url: str, constraint: str, expected: set[str]) -> None:
    assert states_allowed(database_url, constraint) == expected


def test_every_move_has_an_event() -> None:
    known = {cls.name for cls in vars(events).values() if isinstance(cls, type) and hasattr(cls, "name")}
    assert {f"job.{past}" for past in PAST.values()} <= known
    assert PAST.keys() == MOVES.keys()


def test_every_move_is_a_method_of_the_store() -> None:
    assert all(callable(getattr(Jobs, move, None)) for move in MOVES)


def test_every_state_is_reached_and_only_the_final_ones_cannot_be_left_by_a_worker() -> None:
    assert {after for _, after in MOVES.values()} == set(JobState)
    left = {before for before, _ in MOVES.values()}
    assert set(JobState) - left == {JobState.DONE, JobState.CANCELLED}
