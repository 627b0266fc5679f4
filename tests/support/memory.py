"""Where the tests' files are in memory, if there is such a place with room for them.

Most of what is written are databases that live for a second, and journals that wait for the disk at every line. They are read
after crashes of processes, never of the machine.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 6 * 2**30  # bytes; some hundred megabytes for each process of tests, and a backlog of a million rows


def in_memory() -> Path | None:
    """None: where temporary files are usually. So it is, too, when TMPDIR says where."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        return None
    return MEMORY
