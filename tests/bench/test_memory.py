from __future__ import annotations

import gc

import pytest

from bench import memory
from bench.jobs import run
from bench.memory import GOAL, PARTS, Sample, growth
from tests.support.matrix import count


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_already() -> None:
    """Each sample collects the garbage: not also through all that the tests before these have left."""
    gc.collect()
    gc.freeze()


def test_growth_is_counted_over_the_second_half_only() -> None:
    warm = [Sample(units, blocks=50_000 + units, resident=1_000_000) for units in range(100, 600, 100)]
    flat = [Sample(units, blocks=50_600, resident=1_000_000 + units) for units in range(600, 1_100, 100)]

    assert growth([*warm, *flat]) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(memory.CASES)[: count(2, proof=len(memory.CASES))])
def test_each_case_does_all_of_its_units(case: str, database_url: str) -> None:
    samples = run(lambda: memory.perform(case, database_url, count(200, proof=1_000)))

    assert len(samples) == PARTS
    assert [each.units for each in samples] == [samples[0].units * number for number in range(1, PARTS + 1)]


def test_a_leak_of_one_object_a_unit_is_a_hundred_times_the_goal() -> None:
    kept: list[object] = []
    samples = []
    for number in range(1, PARTS + 1):
        kept += [object() for _ in range(1_000)]
        samples.append(memory.sample(number * 1_000))

    assert growth(samples)[0] > 90 * GOAL
