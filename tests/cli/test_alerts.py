from __future__ import annotations

from tests.cli.conftest import Cli
from trueup.config import CHECKS


def test_alerts_are_listed_with_what_fails_first(cli: Cli) -> None:
    header, first, *rest = cli("alerts").out.splitlines()
    assert header.split()[:5] == ["CHECK", "STATE", "SEVERITY", "VALUE", "ALLOWED"]
    assert first.split()[:3] == ["workers", "failing", "error"]
    assert "no worker is alive" in first
    assert len(rest) == len(CHECKS) - 1
    rules = cli("alerts", "--json").json
    assert (rules[0]["check"], rules[0]["state"], rules[0]["since"]) == ("workers", "failing", None)
