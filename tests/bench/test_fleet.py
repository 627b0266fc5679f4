from __future__ import annotations

import pytest

from bench.fleet import Case, measure
from tests.support.database import TestServer


@pytest.mark.slow
def test_a_fleet_behind_a_pooler_is_measured(server: TestServer) -> None:
    found = measure(
        server.cluster, Case(2, pooled=True), settle=0.0, seconds=6.0
    )  # idle workers send a statement every few seconds

    assert found["transactions"] > 0
    assert 0 < found["connections"] <= 50
    assert 0 < found["p50_ms"] <= found["worst_ms"]
