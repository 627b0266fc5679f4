from __future__ import annotations

from dataclasses import astuple

import pytest

from trueup.demo.shop import PARTS, Plan


@pytest.mark.parametrize("jobs", [50, 250, 1500, 1501, 9999])
@pytest.mark.parametrize("part", PARTS)
def test_a_plan_makes_as_many_jobs_as_were_asked_for(part: str, jobs: int) -> None:
    plan = PARTS[part](jobs)
    assert plan.jobs == jobs
    assert min(astuple(plan)) >= 0


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_slices_of_a_plan_add_up_to_it(count: int) -> None:
    plan = Plan(orders=100, pictures=51, reports=3, pings=7, feeds=2, reminders=1)
    slices = list(plan.slices(count))
    assert len(slices) == count
    assert tuple(map(sum, zip(*map(astuple, slices), strict=True))) == astuple(plan)
