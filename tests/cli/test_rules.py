from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.prometheus import promtool

UNREACHABLE = "postgresql://127.0.0.1:1/none"


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["yaml", "json"])
def test_what_rules_prometheus_prints_is_a_file_of_rules_for_the_app(
    bare_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv("TRUEUP_DATABASE_URL", UNREACHABLE)
    printed = bare_cli("rules", "prometheus", "--app", "shop:app", *options).out
    (tmp_path / "rules.yml").write_text(printed, "utf-8")
    promtool("check", "rules", str(tmp_path / "rules.yml"))
    assert "TrueupOverdueJobs" in printed
    assert "flaky|" in printed
    assert "TrueupRowsQuarantined" not in printed, "it declares no reconciler"


def test_rules_grafana_prints_a_dashboard_with_the_name_of_the_service(
    bare_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUEUP_DATABASE_URL", UNREACHABLE)
    monkeypatch.setenv("TRUEUP_SERVICE", "shop")
    board = bare_cli("rules", "grafana", "--app", "shop:app").json
    assert board["title"] == "shop"
    titles = [panel["title"] for panel in board["panels"]]
    assert "Due jobs" in titles
    assert "Rows by outcome" not in titles


def test_without_an_app_the_rules_are_those_of_the_checks(bare_cli: Cli) -> None:
    printed = bare_cli("rules", "prometheus").out
    assert "TrueupOverdueJobs" in printed
    assert "TrueupJobsDied" not in printed
