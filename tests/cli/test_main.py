from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from trueup import __version__
from trueup.cli import __main__

Start = Callable[..., subprocess.Popen[str]]


def test_version(bare_cli: Cli) -> None:
    assert bare_cli("--version").out == f"trueup {__version__}\n"


@pytest.mark.parametrize("command", [[], ["jobs"], ["dead"], ["postgres"]], ids=" ".join)
def test_a_group_without_a_command_shows_its_help_and_is_a_usage_error(bare_cli: Cli, command: list[str]) -> None:
    result = bare_cli(*command)
    assert result.code == 2
    assert "Commands:" in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    "command",
    ["worker", "status", "migrate", "config", "demo", "jobs list", "jobs enqueue", "dead revive", "postgres psql"],
)
def test_every_command_has_help(bare_cli: Cli, command: str) -> None:
    result = bare_cli(*command.split(), "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: trueup {command}")


def test_an_unknown_command_is_one_clear_error_and_where_to_look(bare_cli: Cli) -> None:
    result = bare_cli("job", "list")
    assert result.code == 2
    assert result.err.startswith("error: No such command 'job'")
    assert "try: trueup --help" in result.err


def test_an_unknown_option_names_the_command_whose_help_to_read(bare_cli: Cli) -> None:
    result = bare_cli("jobs", "list", "--stat", "dead")
    assert result.code == 2
    assert "--stat" in result.err
    assert "try: trueup jobs list --help" in result.err


def test_options_may_stand_before_the_command_or_after_it(cli: Cli) -> None:
    before = cli("--schema", "elsewhere", "config", "--json").json
    after = cli("config", "--json", "--schema", "elsewhere").json
    assert {row["name"]: row["value"] for row in before}["schema"] == "elsewhere"
    assert before == after


def test_help_does_not_wait_for_what_only_other_commands_need() -> None:
    heavy = "{'psycopg', 'pydantic', 'rich'} & set(sys.modules)"
    program = f"import sys; from trueup.cli.main import main; main(['--help']); print({heavy}, file=sys.stderr)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert shown.stdout.startswith("Usage: trueup")
    assert shown.stderr == "set()\n"


def test_completion_can_be_shown(start: Start) -> None:
    process = start("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "_TRUEUP_COMPLETE=complete_bash" in out


def test_a_reader_that_goes_away_early_is_no_error_worth_a_word(start: Start) -> None:
    process = start("config")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 1


@pytest.mark.parametrize(
    ("url", "warned"),
    [("postgresql://app:geheim@127.0.0.1:1/shop", True), ("postgresql://app@127.0.0.1:1/shop", False)],
)
def test_a_password_on_the_command_line_is_warned_about(bare_cli: Cli, url: str, warned: bool) -> None:
    result = bare_cli("status", "--database-url", url)
    assert ("process list" in result.err) is warned
    assert "geheim" not in result.err


def test_ctrl_c_while_the_commands_are_imported_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "trueup.cli.main":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "trueup.cli.main")
    assert __main__.main() == 130


def test_the_script_begins_where_a_ctrl_c_is_caught() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert EntryPoint("trueup", project["scripts"]["trueup"], "console_scripts").load() is __main__.main
