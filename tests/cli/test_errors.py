"""What people read when something is wrong: one line, a way out, an exit code, and never a password."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest

from tests.cli.conftest import Cli
from trueup import App


def test_a_server_that_is_not_there_is_named_without_its_password(bare_cli: Cli) -> None:
    result = bare_cli("status", "--database-url", "postgresql://app:geheim@127.0.0.1:1/shop")
    assert result.code == 1
    warning, error = result.err.split("\n", 1)
    assert warning.startswith("warning: --database-url has a password in it")
    assert error.startswith("error: cannot connect to postgresql://app:***@127.0.0.1:1/shop")
    assert "geheim" not in result.err
    assert result.out == ""


@pytest.mark.parametrize("url", ["mysql://app:geheim@db/x", "postgresql://app:ge heim@db/x", "geheim"])
def test_a_url_that_is_none_is_a_configuration_error_without_its_password(bare_cli: Cli, url: str) -> None:
    result = bare_cli("status", "--database-url", url)
    assert result.code == 2
    assert "error: " in result.err
    assert "heim" not in result.err


def test_a_database_without_the_schema_says_to_migrate(
    bare_cli: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUEUP_DATABASE_URL", empty_database_url)
    for command in (["status"], ["jobs", "list"], ["jobs", "show", "1"], ["dead", "revive", "1"]):
        result = bare_cli(*command)
        assert result.code == 2
        assert "the database has no trueup schema 'trueup' yet; run `trueup migrate`" in result.err
        assert "Traceback" not in result.err


def test_a_user_without_rights_is_told_so(bare_cli: Cli, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = f"guest_of_{connection.info.dbname}"
        connection.execute(f"create role {name} login")
    try:
        result = bare_cli("status", "--database-url", database_url.replace("//postgres@", f"//{name}@"))
        assert result.code == 2
        assert "its user lacks a privilege: permission denied" in result.err
    finally:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(f"drop role {name}")


FAILING = {
    "a server that is not there": ("jobs list --database-url postgresql://127.0.0.1:1/shop", 1),
    "a name that is none": ("schedules show nothing", 1),
    "an option that is none": ("jobs list --stat dead", 2),
    "a value that is none": ("jobs list --state sleeping", 2),
    "a schema that is none": ("status --schema Shop", 2),
    "an App that is none": ("status --app nothing:app", 2),
}


@pytest.mark.parametrize(("command", "code"), FAILING.values(), ids=FAILING)
def test_a_reader_of_json_gets_nothing_after_an_error_and_a_person_its_text(cli: Cli, command: str, code: int) -> None:
    """As kubectl and gh do it: `set -o pipefail` stops the script, and its log has the reason as a person reads it."""
    result = cli(*command.split(), "--json")
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("error: ")


@pytest.mark.parametrize("command", ["--version", "config --json"])
def test_a_full_disk_under_standard_output_is_an_error_of_one_line(command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "trueup.cli", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: a file cannot be written: No space left on device;")
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_setting_in_the_environment_is_named(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEUP_CONCURENCY", "5")
    result = bare_cli("config")
    assert result.code == 2
    assert result.err == "error: TRUEUP_CONCURENCY is not a setting; did you mean concurrency (TRUEUP_CONCURRENCY)?\n"


def test_each_of_several_problems_has_a_line(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEUP_CONCURRENCY", "none")
    monkeypatch.setenv("TRUEUP_SCHEMA", "Bad Name")
    first, second = bare_cli("config").err.splitlines()
    assert first.startswith("error: TRUEUP_")
    assert second.startswith("       TRUEUP_")


@pytest.mark.parametrize("given", ["x", "0", "-1", str(2**63)])
def test_what_cannot_be_an_id_is_a_usage_error(cli: Cli, given: str) -> None:
    result = cli("jobs", "show", "--", given)
    assert result.code == 2
    assert "'ID'" in result.err


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "arguments",
    [
        [b"jobs", b"enqueue", b"send", b"\xff"],
        [b"jobs", b"enqueue", b"\xff\xfe"],
        [b"status", b"--schema", b"\xff"],
        [b"\xff"],
        [b"--app", b"\xff:app", b"status"],
        [b"jobs", b"enqueue", b"send", DEEP.encode()],
        [b"jobs", b"enqueue", b"send", b"--arg", b"x:=" + DEEP.encode()],
        [b"jobs", b"enqueue", b"send", b'{"a":' * 20_000],
    ],
)
def test_arguments_that_are_no_text_or_no_json_are_wrong_usage(arguments: list[bytes]) -> None:
    program = [sys.executable.encode(), b"-m", b"trueup.cli", *arguments]
    result = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert len(result.stderr) < 1000


def test_a_password_on_the_command_line_is_not_kept_in_argv() -> None:
    url = "postgresql://app:geheim@127.0.0.1:1/shop"
    code = f"""
import sys
from trueup.cli.main import main

sys.argv = ["trueup", "status", "--database-url", {url!r}]
main()
print(sys.argv)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "app:***@127.0.0.1:1" in result.stdout
    assert "geheim" not in result.stdout + result.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_what_an_encoding_lacks_does_not_end_a_command(database_url: str, encoding: str) -> None:
    app = App(database_url)

    @app.job
    async def greet(name: str) -> None: ...

    job = greet.enqueue_sync("Größe ✓ 日本")
    app.close_sync()
    environment = {**os.environ, "TRUEUP_DATABASE_URL": database_url, "PYTHONIOENCODING": encoding}
    for arguments in (["jobs", "show", str(job.id)], ["config"]):
        program = [sys.executable, "-m", "trueup.cli", *arguments]
        result = subprocess.run(program, capture_output=True, env=environment, timeout=60, check=False)
        assert result.returncode == 0, result.stderr
        assert result.stderr == b""
        assert "greet" in result.stdout.decode(encoding) or arguments == ["config"]
