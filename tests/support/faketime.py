"""Wrong clocks: programs that believe it is another time, or that time runs at another speed.

Only the wall clock is wrong. The monotonic clocks, CLOCK_BOOTTIME, and every sleep and timeout keep their real pace; faking
those as well makes `time.sleep` hang. The library comes from the wheel `libfaketime`, which is never imported.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trueup.embedded import processes

SHARED_MEMORY = Path("/dev/shm")


def faketime_env(offset: str = "+1h", *, rate: float = 1.0, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which a program, and what it starts, sees a wall clock that is off by `offset`.

    Offsets are "+90" (seconds), "-5m", "+1h", "-1d". With a rate of 2 its seconds pass twice as fast. Raises RuntimeError where
    the library is not to be had.
    """
    return {**_preloaded(base), "FAKETIME": offset if rate == 1.0 else f"{offset} x{rate}"}


def steered_env(steering: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a program whose wall clock `shift_clock` moves while it runs; it is right at first, to a second or two.

    It is off by the file's time of change minus that of the program's start. The library could also read an offset from the file, but
    does so whenever the program asks for the time, in signal handlers too: one in thousands of PostgreSQL's timeouts corrupted the
    memory of its backend, and the server ended all of them.
    """
    steering.touch()
    return {
        **_preloaded(base),
        "FAKETIME": "%",
        "FAKETIME_FOLLOW_FILE": str(steering),
        "FAKETIME_DONT_RESET": "1",
        "FAKETIME_NO_CACHE": "1",
    }


def shift_clock(steering: Path, seconds: int) -> None:
    """Move the clock of the programs that are steered by this file, at once."""
    shifted = steering.stat().st_mtime + seconds
    os.utime(steering, (shifted, shifted))


def _preloaded(base: Mapping[str, str]) -> dict[str, str]:
    return {**base, "LD_PRELOAD": str(library()), "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def library() -> Path:
    """The shared library to preload."""
    spec = importlib.util.find_spec("libfaketime")
    if spec is None or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise RuntimeError("the package libfaketime has a library for Linux on x86_64 only, or is not installed")
    return Path(next(iter(spec.submodule_search_locations or []))) / "vendor/libfaketime/src/libfaketime.so.1"


def remove_leftovers() -> None:
    """Remove the shared memory of programs that were killed; what living ones use stays."""
    for pattern in ("faketime_shm_*", "sem.faketime_sem_*"):
        for left in SHARED_MEMORY.glob(pattern):
            if not processes.alive(int(left.name.rpartition("_")[2])):
                with suppress(FileNotFoundError, PermissionError):  # removed by another test process; another user's
                    left.unlink()
