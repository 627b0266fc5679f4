from __future__ import annotations

import pytest

from bench.successive import measure
from tests.support.database import TestServer


@pytest.mark.slow
def test_each_drain_is_measured(server: TestServer) -> None:
    drains = measure(server.cluster, jobs=200, drains=2)

    assert len(drains) == 2
    assert all(each["per_second"] > 0 and each["cpu_us"] > 0 for each in drains), drains
