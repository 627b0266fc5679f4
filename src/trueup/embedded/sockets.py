"""The directory of a server's unix socket."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

from trueup.errors import ConfigError

UNIX_PORT = 5432  # only part of the socket's file name: each server has a directory to itself
MAX_PATH = 103  # bytes; Linux takes 107, macOS and the BSDs 103
PLAIN_PATH = re.compile(r"[\w/.+@=~ -]*", re.ASCII)  # a comma would end the path in both libpq and the server's setting
COMMON = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  what is made in them has a name of its own and is private


def socket_directory(directory: Path) -> Path:
    """The given directory if a socket's path fits there, or else a short one whose name only depends on it.

    That is in the directory for temporary files, or, where even that has too long a name, in one that every system has. The
    caller makes it private. Raises ConfigError when a socket fits nowhere.
    """
    if _fits(directory):
        return directory
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    name = f"trueup-{os.geteuid()}-{digest}"
    for parent in (tempfile.gettempdir(), *COMMON):
        if _fits(Path(parent) / name) and os.access(parent, os.W_OK | os.X_OK):
            return Path(parent) / name
    raise ConfigError(
        f"no directory for a socket has a name of less than {MAX_PATH} plain characters, neither {directory} nor one for "
        "temporary files: set TMPDIR to a shorter one"
    )


def _fits(directory: Path) -> bool:
    path = f"{directory}/.s.PGSQL.{UNIX_PORT}"
    return len(os.fsencode(path)) <= MAX_PATH and PLAIN_PATH.fullmatch(path) is not None
