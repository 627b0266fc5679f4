"""Writes the tables of `docs/explanation/model.md`: `python -m tests.model.page`. With `--deep`, two faults are explored."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.model.explorer import Guard
from tests.model.jobs import JobProtocol
from tests.model.protocols import PROTOCOLS, Modelled

PAGE = Path(__file__).parents[2] / "docs/explanation/model.md"
BEGIN, END = "<!-- made by: python -m tests.model.page -->", "<!-- end of what was made -->"


def made() -> str:
    """What the models say: how much was explored, and what each guard is for."""
    explored = [explored_row(protocol, bounds) for protocol in PROTOCOLS for bounds in protocol.bounds]
    tables = [_table("What was explored", ("protocol", "bounds", "states", "steps", "broken promises"), explored)]
    for protocol in PROTOCOLS:
        head = ("guard", "what it sees to", "where", "what breaks without it")
        rows = [guard_row(protocol, guard) for guard in protocol.guards]
        tables.append(_table(f"Guards of {protocol.name}", head, rows))
    return "\n\n".join(tables)


def explored_row(protocol: Modelled, bounds: str) -> str:
    found = protocol.check(bounds)
    promises = "none" if found.broken is None else found.broken.promise
    return _row((protocol.name, bounds, f"{found.states:,}", f"{found.transitions:,}", promises))


def guard_row(protocol: Modelled, guard: Guard) -> str:
    broken = protocol.check(guard.shown_in, guard.name, *guard.backed_by).broken
    lost = "nothing" if broken is None else broken.promise
    if guard.redundant:
        lost = f"nothing: {guard.redundant}"
    elif guard.backed_by:
        backers = " and ".join(f"`{name}`" for name in guard.backed_by)
        lost = f"nothing, because of {backers}: {guard.why_backed}. Without all of them: {lost}"
    return _row((f"`{guard.name}`", guard.meaning, f"`{guard.file}`", lost))


def _table(title: str, head: tuple[str, ...], rows: Iterable[str]) -> str:
    return "\n".join((f"## {title}\n", _row(head), _row(tuple("---" for _ in head)), *rows))


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def deep() -> None:
    for old in (False, True):
        began = time.monotonic()
        found, broken = JobProtocol(old=old, max_attempts=2, max_faults=2).check()
        took = time.monotonic() - began
        print(f"jobs, old release: {old}: {found.states:,} states, {found.transitions:,} steps, {took:.0f} s")
        print(broken or "no promise is broken")


if __name__ == "__main__":
    if "--deep" in sys.argv:
        deep()
    else:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{made()}\n\n{END}{after}", "utf-8")
