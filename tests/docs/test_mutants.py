"""The mutations of `make mutants` still apply to the code, name tests that exist, and have their verdicts on the page."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_pages import is_test
from tools import mutants

MUTANTS = mutants.mutants()
VERDICTS = mutants.verdicts()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_mutant_applies_once_and_was_killed(mutant: mutants.Mutant) -> None:
    """When its text has moved on, mend it in tools/mutants.toml; then `python -m tools.mutants ID` gives it a verdict."""
    assert mutant.applied(ROOT) != mutant.path(ROOT).read_text("utf-8")
    missing = [test for test in mutant.tests if not _exists(test)]
    assert missing == []
    verdict = VERDICTS.get(mutant.id)
    assert verdict is not None, f"run `python -m tools.mutants {mutant.id}`"
    assert mutants.row(mutant, verdict) in mutants.PAGE.read_text("utf-8")
    if mutant.equivalent:
        assert verdict == f"{mutants.EQUIVALENT}: {mutant.equivalent}"
    else:
        assert verdict.startswith("`tests/")


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return is_test(ROOT / path, "" if name.startswith("Test") else name) and name in (ROOT / path).read_text("utf-8")


def test_no_mutant_is_listed_twice_and_the_page_lists_no_other() -> None:
    ids = [mutant.id for mutant in MUTANTS]
    assert sorted(ids) == sorted(set(ids))
    assert set(VERDICTS) == set(ids)
