"""The protocols hold as they are, and each of their guards is needed."""

from __future__ import annotations

import pytest

from tests.model import page
from tests.model.protocols import PROTOCOLS, Modelled

BOUNDS = [pytest.param(each, bounds, id=f"{each.name}: {bounds}") for each in PROTOCOLS for bounds in each.bounds]
GUARDS = [pytest.param(each, guard.name, id=guard.name) for each in PROTOCOLS for guard in each.guards]


WRITTEN = page.PAGE.read_text("utf-8").splitlines()
STALE = "the page is not what the model says: run `python -m tests.model.page`"


@pytest.mark.parametrize(("protocol", "bounds"), BOUNDS)
def test_no_interleaving_within_these_bounds_breaks_a_promise(protocol: Modelled, bounds: str) -> None:
    assert (found := protocol.check(bounds).broken) is None, f"\n{found}"
    assert page.explored_row(protocol, bounds) in WRITTEN, STALE


@pytest.mark.parametrize(("protocol", "name"), GUARDS)
def test_a_promise_is_broken_without_the_guard(protocol: Modelled, name: str) -> None:
    """Those that others back up, or that are redundant, say so in the table of guards; here it is seen to be true."""
    guard = protocol.guard(name)
    bounds = guard.shown_in
    if guard.redundant:
        assert all(protocol.check(each, name).broken is None for each in protocol.bounds), "it is needed after all"
    else:
        if guard.backed_by:
            assert protocol.check(bounds, name).broken is None, "it is needed even with those that back it"
            assert protocol.check(bounds, *guard.backed_by).broken is None, (
                "those that back it are needed by themselves"
            )
        assert protocol.check(bounds, name, *guard.backed_by).broken is not None, "the guard, or the model, is too weak"
    assert page.guard_row(protocol, guard) in WRITTEN, STALE


def test_the_page_lists_nothing_else() -> None:
    rows = [line for line in WRITTEN if line.startswith("| ") and "---" not in line]
    heads = 1 + len(PROTOCOLS)
    assert len(rows) == heads + len(BOUNDS) + len(GUARDS), STALE


def test_the_model_finds_the_job_that_was_claimed_while_its_worker_left() -> None:
    """The worker stops while its claim is still under way in a stalled server, and looks before it waits for that claim."""
    found = PROTOCOLS[0].check("one attempt", "leave_holds_first", "rescue_finds_vanished").broken
    assert found is not None
    assert found.promise == "the job stays running for ever, although every worker has stopped"
    looks, claims, leaves = map(
        found.steps.index, ("A looks whether it holds anything", "A has claimed term 1", "A leaves")
    )
    assert looks < claims < leaves


def test_the_model_finds_the_tick_that_a_holder_without_a_claim_marks_as_skipped() -> None:
    found = PROTOCOLS[2].check("two claims and a backfill", "skip_is_fenced").broken
    assert found is not None
    assert found.promise == "the ledger says that a tick was skipped which has run"
    assert "job 1 is rescued of term 1" in found.steps
    assert "term 1 of job 1 is dropped, its tick skipped" in found.steps
