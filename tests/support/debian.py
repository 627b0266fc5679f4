"""Debian packages unpacked into the checkout: programs for the tests, without installing anything and without root.

The machine's own sources are asked, but apt works on private lists and an empty package database, so it neither needs
nor changes the state of the system. What was unpacked once is kept in `.cache/debian`; `make clean` removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "debian"

COMMAND_TIMEOUT = 100  # below the limit of a test, so that a dead mirror ends in our message

# The hooks of the system's own apt are cleared: they announce new lists to it, or empty its cache.
# The sandbox user is root because apt's usual one, _apt, may not be able to enter the checkout.
# The error mode turns an unreachable mirror into a failure of `update`, not of the download after it.
APT_CONF = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "15";
Acquire::https::Timeout "15";
Dir::State "{scratch}/state";
Dir::State::Lists "{scratch}/state/lists";
Dir::State::Status "{scratch}/state/status";
Dir::Cache "{scratch}/cache";
Dir::Log "{scratch}/log";
"""


class DebianError(RuntimeError):
    """A package could not be fetched or unpacked; the message holds what the tool said."""


def unpack(packages: Sequence[str], *, cache: Path = CACHE) -> Path:
    """Return the root of a tree that holds the files of these packages, and of no others: dependencies must be named.

    The first call downloads; later calls, also from other processes, get the same tree. A call that is killed halfway
    leaves no tree. Raises DebianError when this is not a Debian system or a package cannot be had.
    """
    tree = cache / ",".join(sorted(packages))
    if tree.exists():
        return tree
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise DebianError(f"{tool} is not on this machine, so {', '.join(packages)} cannot be unpacked from Debian")
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache), _scratch(cache) as scratch:
        if not tree.exists():
            _extract(_download(packages, scratch), scratch / "tree").rename(tree)
    return tree


def library_path(tree: Path) -> str:
    """The value of LD_LIBRARY_PATH with which programs of the tree find the shared libraries of the tree."""
    return ":".join(str(directory) for pattern in ("lib", "usr/lib") for directory in tree.glob(f"{pattern}/*-linux-*"))


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Wait until no other process is at work in the cache; a process that dies lets the next one in."""
    with (cache / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    """A directory on the same file system as the cache, cleared of what killed predecessors left."""
    prefix = "unpacking-"
    for leftover in cache.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)  # an orphaned apt-get may still be writing there
    with tempfile.TemporaryDirectory(prefix=prefix, dir=cache, ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


def _download(packages: Sequence[str], scratch: Path) -> list[Path]:
    for directory in ("state/lists/partial", "cache/archives/partial", "debs"):
        (scratch / directory).mkdir(parents=True)
    (scratch / "state/status").touch()
    config = scratch / "apt.conf"
    config.write_text(APT_CONF.format(scratch=scratch))
    _run(["apt-get", "-c", str(config), "update"], directory=scratch)
    _run(["apt-get", "-c", str(config), "download", "--", *packages], directory=scratch / "debs")
    return sorted((scratch / "debs").glob("*.deb"))


def _extract(archives: Sequence[Path], tree: Path) -> Path:
    tree.mkdir()
    for archive in archives:
        _run(["dpkg", "-x", str(archive), str(tree)], directory=tree)
    return tree


def _run(command: Sequence[str], *, directory: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise DebianError(f"`{' '.join(command)}` did not end within {COMMAND_TIMEOUT} s") from None
    if done.returncode != 0:
        raise DebianError(f"`{' '.join(command)}` failed:\n{done.stdout.strip()}")
