"""The faults of a demo recur in a soak."""

from __future__ import annotations

from itertools import pairwise

import pytest

from apps.rounds import MAX_ROUND, MIN_ROUND, rounds


@pytest.mark.parametrize("seconds", [3, 60, 90, 149.9, 150, 600, 3600])
def test_rounds_follow_one_another_until_the_end(seconds: float) -> None:
    made = rounds(seconds)
    assert made[0].begin == 0
    assert made[-1].end == pytest.approx(seconds)
    assert all(after.begin == before.end for before, after in pairwise(made))
    assert all(MIN_ROUND <= each.length <= MAX_ROUND for each in made[:-1])
    assert len(made) >= seconds // (MIN_ROUND + MAX_ROUND), "faults come again and again"


def test_a_demo_has_its_faults_once_and_a_soak_of_ten_minutes_in_every_round_alike() -> None:
    assert len(rounds(90)) == 1
    assert 6 <= len(rounds(600)) <= 10
    assert rounds(600) == rounds(600)
