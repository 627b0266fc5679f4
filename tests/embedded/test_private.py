from __future__ import annotations

import os
from pathlib import Path

import pytest

from trueup.embedded.cluster import Cluster
from trueup.embedded.embedded import EmbeddedPostgres
from trueup.embedded.private import make_private
from trueup.errors import ConfigError


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_directory_is_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a" / "b") == 0o700


def test_a_directory_that_stood_open_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(0o777)
    make_private(directory)
    assert mode(directory) == 0o700


def test_another_users_directory_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    if os.geteuid() == 0:
        foreign.mkdir(mode=0o755)
        os.chown(foreign, 4242, 4242)
    else:
        foreign = Path("/usr")
    before = foreign.stat()
    with pytest.raises(ConfigError, match="belongs to another user"):
        make_private(foreign)
    assert foreign.stat() == before


def test_a_link_put_in_the_way_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(ConfigError):
        make_private(link)
    assert mode(target) == 0o755


def test_a_directory_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        make_private(tmp_path / "file" / "below")


@pytest.mark.parametrize("name", ["loop", "a\nb", "a\rb", "a\tb"])
def test_a_path_that_no_server_can_use_is_refused_before_one_starts(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    if name == "loop":
        directory.symlink_to(directory)
    with pytest.raises(ConfigError, match=r"cannot be|control character"):
        EmbeddedPostgres(directory).acquire()
    with pytest.raises(ConfigError, match=r"cannot be|control character"):
        Cluster(directory).start()
