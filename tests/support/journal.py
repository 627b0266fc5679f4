"""The history a process keeps: one JSON line per event and per effect, on disk before the next thing happens.

`TRUEUP_HISTORY` names the directory; each process writes `<pid>.jsonl` there. A line that a kill cut short is dropped by
the reader: what it would have said had not happened yet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

from trueup.clock import elapsed
from trueup.events import Event, JobStarted

VARIABLE = "TRUEUP_HISTORY"
OwnConnection = dict[str, Any]


class Journal:
    """Subscribe it to `app.events`. `trust_left` says how many seconds of its lease this process still believes in."""

    def __init__(self, directory: Path, trust_left: Callable[[], float] = lambda: float("inf")) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._trust_left = trust_left

    def __call__(self, event: Event) -> None:
        line: OwnConnection = {"event": event.name, **asdict(event)}
        if isinstance(event, JobStarted):
            line["trust_left"] = _finite(self._trust_left())
        self._write(line)

    def effect(self, *, job: int, term: int, key: str, content: str) -> None:
        """Something that cannot be taken back happens outside the database."""
        self._write({"effect": content, "job_id": job, "term": term, "key": key})

    def note(self, **line: Any) -> None:
        """Anything else that was seen or done."""
        self._write(line)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, line: OwnConnection) -> None:
        line = {**line, "process": os.getpid(), "elapsed": elapsed()}
        os.write(self._file, json.dumps(line, default=_plain).encode() + b"\n")  # one write: never half a line of ours
        os.fsync(self._file)


_parsed: dict[Path, tuple[int, list[OwnConnection]]] = {}  # how far each journal was read, and what was in it


def read_journals(directory: Path) -> list[OwnConnection]:
    """The lines of all processes, in the order of this machine's clock that cannot be set.

    Tests ask again and again until something was said, so only what was written since is read.
    """
    for path in [known for known in _parsed if known.parent != directory]:
        del _parsed[path]  # of another test
    lines = [line for path in directory.glob("*.jsonl") for line in _lines(path)]
    return sorted(lines, key=lambda line: line["elapsed"])


def _lines(path: Path) -> list[OwnConnection]:
    place, lines = _parsed.get(path, (0, []))
    with path.open("rb") as file:
        file.seek(place)
        written, _, cut_short = file.read().rpartition(b"\n")
        _parsed[path] = (file.tell() - len(cut_short), lines)
    for text in written.splitlines():
        with suppress(ValueError):  # cut short by a kill, and then somebody went on with the file
            lines.append(json.loads(text))
    return lines


def _finite(seconds: float) -> float:
    return min(max(seconds, -1e9), 1e9)


def _plain(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{value!r} in an event")
