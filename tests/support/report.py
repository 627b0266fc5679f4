"""What a long run of faults says: a live table while it runs, then a readable report and the same as JSON.

A part is one fault with its proof, or one noun under all faults. A part whose fault did not land proves nothing: it is void,
which is neither passed nor failed, and the run says so.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

WAITING, RUNNING, HELD, VIOLATED, VOID = "waiting", "running", "held", "violated", "void"
EXIT = {HELD: 0, VIOLATED: 1, VOID: 2}
MAX_SHOWN = 20  # violations of one part
REDRAW = "\x1b[{}F\x1b[J"
PLAIN_EVERY = 15.0  # seconds between two tables where the output is not a terminal


class DidNotLand(Exception):
    """The fault did not happen as it was meant to, so nothing is proved either way. The message says what was missing."""


@dataclass
class Part:
    name: str
    title: str
    state: str = WAITING
    doing: str = ""
    checked: dict[str, int] = field(default_factory=dict)  # by invariant: how many facts were looked at
    numbers: dict[str, Any] = field(default_factory=dict)
    timeline: list[tuple[float, str]] = field(default_factory=list)  # seconds since the fault, and what was seen
    violations: list[str] = field(default_factory=list)
    void: str = ""

    def judge(self) -> None:
        """Settle what became of it."""
        self.state = VIOLATED if self.violations else VOID if self.void else HELD
        self.doing = ""


def verdict(parts: Sequence[Part]) -> str:
    """Of the whole run: a violation outweighs a void part, and a part that never ran is void."""
    states = {part.state for part in parts}
    if VIOLATED in states:
        return VIOLATED
    return HELD if states == {HELD} else VOID


class Live:
    """Redraws the table in place on a terminal. Elsewhere it is printed anew when a state changes, and now and then."""

    def __init__(
        self, table: Callable[[], Sequence[str]], states: Callable[[], object], out: TextIO = sys.stdout
    ) -> None:
        self._table = table
        self._states = states
        self._out = out
        self._drawn = 0
        self._last: object = None
        self._last_at = float("-inf")

    def draw(self) -> None:
        states, now = self._states(), time.monotonic()
        terminal = self._out.isatty()
        if not terminal and states == self._last and now - self._last_at < PLAIN_EVERY:
            return
        self._last, self._last_at = states, now
        lines = list(self._table())
        if terminal and self._drawn:
            self._out.write(REDRAW.format(self._drawn))
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()
        self._drawn = len(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Columns as wide as they need to be."""
    texts = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def parts_table(parts: Sequence[Part]) -> list[str]:
    rows = [(part.name, part.state, sum(part.checked.values()), len(part.violations), part.doing) for part in parts]
    return table(("part", "state", "facts checked", "violations", "now"), rows)


def machine() -> dict[str, Any]:
    return {"system": platform.system(), "cpus": os.cpu_count() or 0, "python": platform.python_version()}


def readable(title: str, command: str, parts: Sequence[Part]) -> str:
    """The report for people."""
    lines = [title, "=" * len(title), f"made by `{command}`", ""]
    for part in parts:
        lines += [f"{part.title}: {part.state}", *(f"  void: {part.void}" for _ in [0] if part.void)]
        lines += [f"  {seconds:7.1f} s  {what}" for seconds, what in part.timeline]
        lines += [f"  {name}: {value}" for name, value in part.numbers.items()]
        lines += ["  checked: " + ", ".join(f"{name} {count}" for name, count in part.checked.items()), ""]
        lines += [f"  ! {violation}" for violation in part.violations[:MAX_SHOWN]]
    violations = sum(len(part.violations) for part in parts)
    void = [part.name for part in parts if part.state == VOID]
    lines.append(f"{violations} violations, {len(parts) - len(void)} of {len(parts)} parts count")
    if void:
        lines.append(f"void, and so not proved: {', '.join(void)}")
    return "\n".join(lines)


def document(command: str, parts: Sequence[Part], **more: Any) -> Mapping[str, Any]:
    """The report for programs, and the numbers to check in."""
    of_parts = [{name: value for name, value in asdict(part).items() if name != "doing"} for part in parts]
    return {"command": command, "verdict": verdict(parts), "machine": machine(), **more, "parts": of_parts}


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
