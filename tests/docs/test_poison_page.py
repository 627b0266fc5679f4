"""The table of what was tried against one bad job, schedule, row or scan is made from the tests that try it."""

from __future__ import annotations

from tests.poison_page import PAGE, STAGES, page
from tests.work import test_poison as jobs
from tests.work import test_poison_ticks as ticks
from tests.work.rows import test_poison as rows

STALE = "run `python -m tests.poison_page`"
ASIDE = {"test_forget", "test_a_refusal_of_an_earlier_claim_is_not_shown"}  # of no culprit that goes on to be one


def test_the_page_has_what_the_tests_try() -> None:
    assert PAGE.read_text("utf-8") == page(), STALE


def test_every_stage_that_is_tested_is_on_the_page() -> None:
    told = {stage.test.__name__ for stages in STAGES.values() for stage in stages}
    stages = {
        name
        for module in (jobs, ticks, rows)
        for name in vars(module)
        if name.startswith("test_") and name.count("_") == 1
    }
    assert stages - told - ASIDE == set()
