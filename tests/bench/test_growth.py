from __future__ import annotations

import pytest

from bench.growth import Case, cases, measure
from tests.support.database import TestServer

FEW = 10_000  # rows; reading all of them takes ten times as long as a claim
MAX_RATIO = 5.0  # times as long, on a machine that may be busy; what grew with the rows was 20 and more


@pytest.mark.slow
def test_claims_and_looks_take_no_longer_beside_what_they_do_not_need(server: TestServer) -> None:
    wanted = {"delayed jobs of higher priority", "delayed jobs of a kind with a limit", "fair keys that are not due"}
    chosen = [case for case in cases(FEW) if case.name in wanted]
    found = {case.name: measure(server.cluster, case, number, 1, 0) for number, case in enumerate(chosen)}
    assert found.keys() == wanted
    assert {name: ratios for name, ratios in found.items() if max(ratios["claim"], ratios["look"]) > MAX_RATIO} == {}


@pytest.mark.slow
def test_a_drain_beside_idle_kinds_is_a_drain(server: TestServer) -> None:
    ratios = measure(server.cluster, Case("idle kinds with a limit", kinds=50, drains=True), len(cases(FEW)), 1, 1_000)
    assert ratios["drain"] < MAX_RATIO
