from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.waiting import wait_drained


def test_what_goes_on_is_waited_for_however_long_it_takes() -> None:
    left = iter([9, 8, 8, 7, 9, 6, 6, 3, 0])
    wait_drained(lambda: next(left), "jobs", stall=5, most=60, pause=0.001)


@pytest.mark.parametrize(("stall", "most"), [(0.02, 60), (60, 0.02)])
def test_what_stands_still_or_takes_too_long_is_told(stall: float, most: float) -> None:
    def stuck() -> Iterator[int]:
        yield 9
        while True:
            yield from (5, 6)

    left = stuck()
    with pytest.raises(TimeoutError, match=r"jobs: \d are left"):
        wait_drained(lambda: next(left), "jobs", stall=stall, most=most, pause=0.005)
