"""Where a server can be reached: the directory of its unix socket, or a port on this machine."""

from __future__ import annotations

import hashlib
import os
import random
import re
import socket
import tempfile
from pathlib import Path

from trueup.errors import ConfigError

UNIX_PORT = 5432  # only part of the socket's file name: each server has a directory to itself
MAX_PATH = 103  # bytes; Linux takes 107, macOS and the BSDs 103
PLAIN_PATH = re.compile(r"[\w/.+@=~ -]*", re.ASCII)  # a comma would end the path in both libpq and the server's setting
COMMON = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  what is made in them has a name of its own and is private
TCP_PORTS = range(15000, 32000)  # below what systems hand out to outgoing connections, so a restart finds its port free


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


def free_port() -> int:
    """A port of this machine that no process listens on."""
    for _ in range(100):
        port = random.choice(TCP_PORTS)  # noqa: S311  no secret; only to keep out of the way of others who choose now
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ConfigError(f"no free port between {TCP_PORTS.start} and {TCP_PORTS.stop} on 127.0.0.1")
