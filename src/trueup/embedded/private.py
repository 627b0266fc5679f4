"""Directories that no other user may enter.

The servers' sockets ask for no password: any user who can enter the directory of a socket owns the data.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trueup.embedded import nonroot
from trueup.errors import ConfigError


def resolved(directory: Path) -> Path:
    """The directory itself, behind all links. Raises ConfigError for a loop of links, and for a path with a control character:
    PostgreSQL writes the path on a line of `postmaster.pid`, and a server whose file cannot be read would run for ever."""
    try:
        path = directory.resolve()
    except (OSError, RuntimeError) as error:  # up to Python 3.12 a loop is a RuntimeError
        raise ConfigError(f"{directory} cannot be used: {error}") from error
    if any(ord(character) < ord(" ") for character in str(path)):
        raise ConfigError(f"{str(path)!r} contains a line break or another control character; choose another directory")
    return path


def make_private(directory: Path) -> None:
    """Make the directory if need be, with mode 0700, for the user PostgreSQL runs as.

    Raises ConfigError when another user's directory or something else is at that path, or when it cannot be made.
    """
    way = nonroot.way()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), way.uid):
            raise ConfigError(f"{directory} belongs to another user: remove it, or choose another directory")
        directory.chmod(0o700)
        way.own(directory)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be made a private directory: {error}") from error
