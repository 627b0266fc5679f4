from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from trueup.config import SETTINGS


def test_every_setting_is_shown_with_its_source(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEUP_CONCURRENCY", "7")
    rows = {row["name"]: row for row in bare_cli("config", "--json").json}
    assert set(rows) == set(SETTINGS)
    assert (rows["concurrency"]["value"], rows["concurrency"]["source"]) == ("7", "TRUEUP_CONCURRENCY")
    assert rows["schema"]["source"] == "default"


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_the_password_of_the_database_is_not_shown(
    bare_cli: Cli, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv("TRUEUP_DATABASE_URL", "postgresql://app:geheim@db/shop")
    shown = bare_cli("config", *options).out
    assert "geheim" not in shown
    assert "postgresql://app:***@db/shop" in shown


def test_arguments_in_the_code_of_the_app_count(bare_cli: Cli, project: Path) -> None:
    (project / "fixed.py").write_text("from trueup import App\napp = App(concurrency=3)\n")
    rows = {row["name"]: row for row in bare_cli("config", "--app", "fixed:app", "--json").json}
    assert (rows["concurrency"]["value"], rows["concurrency"]["source"]) == ("3", "argument concurrency")
