"""How late things were: one by one, many alike at once, and together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.reconcile.lateness import BOUNDS_S, Lateness

seconds = st.floats(0, 10**7)


def of(each: list[float]) -> Lateness:
    lateness = Lateness()
    for one in each:
        lateness.add(one)
    return lateness


@pytest.mark.parametrize("bound", BOUNDS_S)
def test_what_is_exactly_at_a_bound_counts_as_below_it(bound: float) -> None:
    assert of([bound]).counts.index(1) + 1 == of([bound + 0.001]).counts.index(1)


@given(st.lists(seconds), st.lists(seconds))
def test_two_together_are_all_of_both(one: list[float], other: list[float]) -> None:
    both = of(one)
    both.include(of(other))
    all_of_them = of([*one, *other])
    assert both.counts == all_of_them.counts
    assert (both.late, both.worst_s) == (all_of_them.late, all_of_them.worst_s)
    assert both.total_s == pytest.approx(all_of_them.total_s)


@given(st.integers(1, 1000), st.sampled_from([0.5, 5.0, 59.0, 61.0, 1000.0, 80_000.0, 90_000.0]))
def test_many_alike_are_counted_as_each_of_them(count: int, latest: float) -> None:
    alike, earliest = Lateness(), latest * 0.995
    alike.add_alike(count, latest, earliest)
    each = of([earliest + (latest - earliest) * n / max(count - 1, 1) for n in range(count)])
    assert (alike.counts, alike.late) == (each.counts, each.late)
    assert alike.worst_s == latest
    assert alike.total_s == pytest.approx(each.total_s, rel=0.005)


def test_early_counts_as_on_time() -> None:
    lateness = of([-5.0])
    lateness.add_alike(2, -1.0, -2.0)
    assert (lateness.counts[0], lateness.worst_s, lateness.total_s, lateness.late) == (3, 0.0, 0.0, 0)
