"""The model is about these statements: each guard stands where the model says, and each step names a file that is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.model.explorer import Guard
from tests.model.protocols import PROTOCOLS, Modelled

SOURCES = Path(__file__).parents[2] / "src/trueup"
STATEMENTS = SOURCES / "store/sql"
GUARDS = [guard for protocol in PROTOCOLS for guard in protocol.guards]

# Who makes the same move by another statement must have the same guards.
CLAIMS = ("jobs/claim", "lanes/claim", "lanes/turns")
FINISHES = (
    "jobs/complete",
    "jobs/retry",
    "jobs/snooze",
    "jobs/release",
    "jobs/bury",
    "jobs/defer",
    "jobs/drop",
    "jobs/drop_run",
)


@cache
def source(path: Path) -> str:
    """With single spaces, so that a guard may be broken over lines."""
    return re.sub(r"\s+", " ", path.read_text("utf-8"))


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_guard_stands_where_the_model_says(guard: Guard) -> None:
    assert guard.text in source(SOURCES / guard.file)


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_claim_checks_and_locks_the_holder_in_the_same_way(claim: str) -> None:
    me = source(STATEMENTS / f"{claim}.sql").partition("me as materialized (")[2].partition(" ), ")[0]
    assert "where holder = %(holder)s and rescued_at is null and lease_until > {now}" in me
    assert me.endswith(" for key share")


@pytest.mark.parametrize("claim", ["jobs/claim", "lanes/_taken"])
def test_every_claim_counts_the_attempt_and_mints_a_term(claim: str) -> None:
    text = source(STATEMENTS / f"{claim}.sql")
    assert "attempt = attempt + 1, term = greatest(term + 1, (select {schema}.term_floor()))" in text
    assert "for update skip locked" in text


@pytest.mark.parametrize("finish", FINISHES)
def test_every_finish_has_the_whole_fence_and_says_so(finish: str) -> None:
    text = source(STATEMENTS / f"{finish}.sql")
    assert "j.id = mine.id and j.term = mine.term and j.holder = %(holder)s and j.state = 'running'" in text
    assert "Fence: (id, holder, term)" in text


@pytest.mark.parametrize("back", ["retry", "snooze", "release", "defer", "rescue"])
def test_whatever_puts_a_job_back_clears_its_holder(back: str) -> None:
    assert "set state = 'queued', holder = null" in source(STATEMENTS / f"jobs/{back}.sql")


def test_there_is_no_other_statement_that_ends_a_claim() -> None:
    """A new one belongs to the lists above, and to the model."""
    ends = re.compile(
        r"set state = 'queued', holder = null|delete from \{schema\}\.jobs (?:(?!returning).)*state = 'running'"
    )
    known = {*FINISHES, "jobs/rescue"}
    found = {
        str(path.relative_to(STATEMENTS).with_suffix(""))
        for path in STATEMENTS.rglob("*.sql")
        if ends.search(source(path))
    }
    assert found == known


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_every_step_names_a_statement_that_exists(protocol: Modelled) -> None:
    named = protocol.check(list(protocol.bounds)[-1]).statements
    assert named
    assert [each for each in sorted(named) if not (STATEMENTS / f"{each}.sql").is_file()] == []
