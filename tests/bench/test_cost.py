from __future__ import annotations

import pytest

from bench import cost
from tests.support.database import TestServer
from tests.support.matrix import count


@pytest.mark.slow
def test_every_unit_of_work_has_its_cost(server: TestServer) -> None:
    found = cost.measure_all(server.cluster, units=count(40, proof=200), rounds=1)

    assert found.keys() == {case.name for case in cost.cases("", 200)}
    assert all(each["wal_bytes"] > 50 and each["client_us"] > 0 for each in found.values()), found
