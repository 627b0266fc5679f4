"""Running PostgreSQL's programs, which refuse to run as root, and as a user without a name.

The first choice is a user namespace: the programs run as `nobody` inside it, the files stay ours, and private parent
directories are no obstacle. Where namespaces are forbidden (many containers) root's programs really run as `nobody`; the
data then belongs to that user, and every directory above it must be passable for others. An ordinary user needs neither.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

if sys.platform != "win32":  # importable everywhere, so that an unsupported platform gets our error and no ImportError
    import pwd

NOBODY = 65534  # must have an entry in the user database, or initdb refuses; this one has it on every common system
NAMESPACE = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}")


@dataclass(frozen=True)
class Way:
    """How to start a PostgreSQL program: its prefix, and the options for `subprocess`."""

    prefix: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    condition: str = ""  # what must hold for it to work, for the error message

    @property
    def uid(self) -> int:
        """The user who has to own what the programs write."""
        return int(self.options.get("user", os.geteuid()))

    def own(self, path: Path) -> None:
        """Give the file or directory to the user the programs run as, if that is another user."""
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.options["group"])


DIRECT = Way()
IN_NAMESPACE = Way(prefix=NAMESPACE)
AS_NOBODY = Way(
    options={"user": NOBODY, "group": NOBODY, "extra_groups": []},
    condition="As root without user namespaces PostgreSQL runs as the user nobody, who must be able to enter every "
    "directory above the data and above the programs.",
)


@cache
def way() -> Way:
    """The way that works for this process, determined once."""
    root = os.geteuid() == 0
    if not root and _has_name():
        return DIRECT
    if _namespaces_allowed():
        return IN_NAMESPACE
    return AS_NOBODY if root else DIRECT


def _has_name() -> bool:
    # Containers are often run under a number that no user has; initdb looks up its user's name and fails.
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _namespaces_allowed() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
