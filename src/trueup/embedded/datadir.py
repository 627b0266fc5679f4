"""Creates a data directory, completely or not at all."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from trueup.embedded import binaries, nonroot
from trueup.errors import ConfigError, EmbeddedUnavailable

SUPERUSER = "postgres"
UNFINISHED = "creating-"

# The defaults of a development server. They go into postgresql.conf, where people and ALTER SYSTEM may change them.
DEFAULTS = {
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "max_wal_size": "256MB",  # the default of 1 GB is a lot of disk for a project's directory
    "unix_socket_permissions": "0700",
}


def create(data: Path, *, major: int | None, sync: bool) -> None:
    """Make the data directory at that path unless there is one.

    It appears complete or not at all: a crash halfway leaves only a directory that the next call removes. The caller
    prevents concurrent calls. An existing one stays on the major version it was made with. Raises
    ConfigError when another major is asked for, or when something else is at that path, and EmbeddedUnavailable when
    `initdb` fails.
    """
    for left_over in data.parent.glob(UNFINISHED + "*"):
        shutil.rmtree(left_over, ignore_errors=True)
    made_with = version(data)
    if made_with is None:
        _initialise(data, major or max(binaries.installed()), sync=sync)
    elif major not in (None, made_with):
        raise ConfigError(f"{data} was made by PostgreSQL {made_with} and cannot be used by {major}")


def version(data: Path) -> int | None:
    """The major version the directory was made with; None when it is missing or empty. Raises ConfigError if it is foreign."""
    try:
        return int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        if data.exists() and any(data.iterdir()):
            raise ConfigError(f"{data} is not a PostgreSQL data directory: move it away and try again") from None
        return None


def is_shut_down(data: Path, programs: Path) -> bool:
    """Whether the last server of this directory was stopped in order, according to its control file."""
    said = subprocess.run(
        [programs / "pg_controldata", data],
        env=environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return re.search(r"^Database cluster state: +shut down( in recovery)?$", said.stdout, re.MULTILINE) is not None


def environment() -> dict[str, str]:
    """Our environment, without variables that would change the programs' behaviour."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**inherited, "LC_ALL": "C"}


def _initialise(data: Path, major: int, *, sync: bool) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=data.parent))
    try:
        nonroot.way().own(unfinished)
        made = unfinished / "data"
        _run_initdb(major, made, *([] if sync else ["--no-sync"]))
        made.rename(data)
        _sync_directory(data.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _run_initdb(major: int, target: Path, *arguments: str) -> None:
    way = nonroot.way()
    program = binaries.locate(major) / "initdb"
    try:
        subprocess.run(
            [*way.prefix, program, target, *_options(major), *arguments],
            cwd=target.parent,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            **way.options,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise EmbeddedUnavailable(
            f"no data directory could be made in {target.parent.parent}: {reason}\n"
            f"{way.condition} Remove the cause, or {binaries.OWN_DATABASE}"
        ) from error


def _options(major: int) -> list[str]:
    # The same on every machine, independent of its installed locales: text is ordered by code point.
    locale = ["--encoding=UTF8", "--locale=C"]
    if major >= 17:
        locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return [
        f"--username={SUPERUSER}",
        "--auth-local=trust",
        "--auth-host=reject",
        "--no-instructions",
        *locale,
        *(f"--set={name}={value}" for name, value in DEFAULTS.items()),
    ]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
