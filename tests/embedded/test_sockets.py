from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from trueup.embedded import sockets
from trueup.errors import ConfigError


def test_a_socket_stays_in_its_directory_if_its_path_fits() -> None:
    assert sockets.socket_directory(Path("/srv/app/.trueup/postgres")) == Path("/srv/app/.trueup/postgres")


@pytest.mark.parametrize("name", ["d" * 120, "ü" * 60, "one,two", 'quo"te', "new\nline"])
def test_a_path_no_socket_can_have_is_replaced_by_a_short_one(name: str) -> None:
    directory = Path("/srv") / name
    short = sockets.socket_directory(directory)
    assert short.parent == Path(tempfile.gettempdir())
    assert short == sockets.socket_directory(directory)
    assert short != sockets.socket_directory(directory / "other")


def test_the_longest_path_that_is_kept_can_be_bound(tmp_path: Path) -> None:
    room = sockets.MAX_PATH - len(f"{tmp_path}//.s.PGSQL.{sockets.UNIX_PORT}")
    directory = tmp_path / ("d" * room)
    assert sockets.socket_directory(directory) == directory
    assert sockets.socket_directory(directory.with_name(directory.name + "d")) != directory
    directory.mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(directory / f".s.PGSQL.{sockets.UNIX_PORT}"))


@pytest.mark.parametrize("temporary", ["/tmp/" + "t" * 120, "/tmp/one,two", "/tmp/ü" + "ü" * 50])
def test_a_temporary_directory_no_socket_can_be_in_is_passed_over(
    temporary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    directory = Path(temporary) / "project" / ".trueup" / "postgres"
    short = sockets.socket_directory(directory)
    assert str(short.parent) in sockets.COMMON
    assert short == sockets.socket_directory(directory)
    assert short != sockets.socket_directory(directory / "other")


def test_a_socket_that_fits_nowhere_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "t" * 120)
    monkeypatch.setattr(sockets, "COMMON", ("/nowhere",))
    with pytest.raises(ConfigError, match="TMPDIR"):
        sockets.socket_directory(Path("/tmp") / ("d" * 120))
