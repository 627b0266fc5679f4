"""What the tests run on a Dask cluster. Its workers import this module, so it imports little."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trueup import GiveUp


def cube(n: int) -> int:
    return n**3


def fail(text: str) -> None:
    raise GiveUp(text)


def note(marker: str) -> int:
    """One line per call."""
    with open(marker, "a") as calls:
        calls.write(f"{os.getpid()}\n")
    return os.getpid()


def wait_for(marker: str, gate: str) -> int:
    """Until there is a file at `gate`."""
    note(marker)
    deadline = time.monotonic() + 60
    while not Path(gate).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    Path(f"{marker}.ended").touch()
    return os.getpid()


def die(marker: str) -> None:
    note(marker)
    os._exit(9)
