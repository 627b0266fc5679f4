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


def faketime_env(
    offset: str = "+1h",
    *,
    rate: float = 1.0,
    steered_by: Path | None = None,
    base: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The environment in which a program, and what it starts, sees a wall clock that is off by `offset`.

    Offsets are "+90" (seconds), "-5m", "+1h", "-1d". With a rate of 2 its seconds pass twice as fast. With `steered_by`,
    the file is written, and `set_clock` on it changes the clock of running programs. Raises RuntimeError where the library
    is not to be had.
    """
    environment = {**base, "LD_PRELOAD": str(library()), "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    if steered_by is None:
        return {**environment, "FAKETIME": setting(offset, rate)}
    set_clock(steered_by, offset, rate=rate)
    environment.pop("FAKETIME", None)  # it would win over the file
    return {**environment, "FAKETIME_TIMESTAMP_FILE": str(steered_by), "FAKETIME_NO_CACHE": "1"}


def set_clock(steering: Path, offset: str, *, rate: float = 1.0) -> None:
    """Set the clock of the programs that are steered by this file; they are right or wrong by the new offset at once."""
    written = steering.with_name(f"{steering.name}.new")
    written.write_text(f"{setting(offset, rate)}\n")
    written.replace(steering)  # a program that looked at the clock just now must not find half a file


def setting(offset: str, rate: float) -> str:
    return offset if rate == 1.0 else f"{offset} x{rate}"


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
