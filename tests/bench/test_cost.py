from __future__ import annotations

import pytest

from bench import cost
from bench.server import server


@pytest.mark.slow
def test_every_unit_of_work_has_its_cost() -> None:
    with server() as cluster:
        found = cost.measure_all(cluster, units=200, rounds=1)

    assert found.keys() == {case.name for case in cost.cases("", 200)}
    assert all(each["wal_bytes"] > 50 and each["client_us"] > 0 for each in found.values()), found
