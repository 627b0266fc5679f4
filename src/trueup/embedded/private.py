"""Directories that no other user may enter.

The servers' sockets ask for no password: any user who can enter the directory of a socket owns the data.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trueup.embedded import nonroot
from trueup.errors import ConfigError


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
