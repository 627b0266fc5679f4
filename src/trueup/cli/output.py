"""Writes the output of commands: JSON for programs, tables for people.

A table on a terminal is drawn by rich and fitted to its width; in a pipe it is plain columns of text, one row to a line and
nothing cut off, so that `grep` and `awk` work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from trueup.observe.printable import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

STYLES = {"queued": "cyan", "running": "yellow", "done": "green", "dead": "bold red", "cancelled": "dim"}

LABEL_WIDTH = 10
LEAST = 4  # characters that remain of a column that is cut
GAP = 2  # characters between columns


@dataclass(frozen=True)
class Heading:
    title: str
    right: bool = False
    wide: bool = False  # cut where the terminal is too narrow; the other columns are not


def headings(*titles: str) -> tuple[Heading, ...]:
    """Columns by their titles: `"id>"` is aligned to the right, `"kind*"` is cut where the terminal is too narrow."""
    return tuple(Heading(title.rstrip(">*"), ">" in title, "*" in title) for title in titles)


@dataclass(frozen=True)
class TextTable:
    title: str
    columns: Sequence[Heading]
    rows: list[Sequence[object]] = field(default_factory=list)
    empty: str = "none"

    def texts(self) -> list[list[str]]:
        return [["" if cell is None else printable(str(cell)) for cell in row] for row in self.rows]


def write_json(document: object) -> None:
    """Write one JSON document, indented."""
    _write(_encode(document, indent=2))


def write_json_line(document: object) -> None:
    _write(_encode(document, indent=None))


def say(text: str) -> None:
    """Write a line about the result."""
    _write(printable(text))


def note(text: str) -> None:
    """Write a line that is not part of the result to standard error."""
    print(printable(text), file=sys.stderr)


def show(*tables: TextTable) -> None:
    """Write the tables, on a terminal with colours and to its width."""
    if on_terminal():
        for table in tables:
            terminal().print(drawn(table, terminal().width, titled=len(tables) > 1), crop=False)
    else:
        _write("\n\n".join(plain(table, titled=len(tables) > 1) for table in tables))


def write_block(facts: Iterable[tuple[str, str]]) -> None:
    """Write facts below one another, with the labels in a column; the texts are already printable."""
    for label, text in facts:
        indented = text.replace("\n", "\n" + " " * (LABEL_WIDTH + 1))
        if on_terminal():
            from rich.text import Text

            style = STYLES.get(text, "red" if label == "error" else "")
            terminal().print(Text.assemble((f"{label:{LABEL_WIDTH}} ", "dim"), (indented, style)), soft_wrap=True)
        else:
            _write(f"{label:{LABEL_WIDTH}} {indented}")


def on_terminal() -> bool:
    return sys.stdout.isatty()


@cache
def terminal() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def plain(table: TextTable, *, titled: bool) -> str:
    """The table as lines of text."""
    rows = [[column.title.upper() for column in table.columns], *table.texts()] if table.rows else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_plain_row(table.columns, row, widths) for row in rows] or [table.empty]
    return "\n".join([f"# {table.title}", *lines] if titled else lines)


def _plain_row(columns: Sequence[Heading], row: Sequence[str], widths: Iterable[int]) -> str:
    padded = (
        text.rjust(width) if column.right else text.ljust(width)
        for column, text, width in zip(columns, row, widths, strict=True)
    )
    return "  ".join(padded).rstrip()


def drawn(table: TextTable, width: int, *, titled: bool) -> RenderableType:
    """The table for a terminal of this width. Where all that may be cut has been, it is wider, and the terminal wraps its lines."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    texts = table.texts()
    natural = [
        max(cell_len(text) for text in (column.title, *(row[place] for row in texts)))
        for place, column in enumerate(table.columns)
    ]
    gaps = GAP * (len(natural) - 1)
    widths = fitted(natural, [column.wide for column in table.columns], width - gaps)
    if sum(widths) + gaps > width:
        grid.width = sum(widths) + gaps
    for column, taken in zip(table.columns, widths, strict=True):
        grid.add_column(column.title, justify="right" if column.right else "left", width=taken, no_wrap=not column.wide)
    for row in texts:
        grid.add_row(*(Text(text, STYLES.get(text, ""), no_wrap=True, overflow="ellipsis") for text in row))
    body = grid if table.rows else Text(table.empty, style="dim")
    return Group(Text(table.title, style="bold"), body, Text()) if titled else body


def fitted(widths: Sequence[int], cut: Sequence[bool], room: int) -> list[int]:
    """Widths of columns that take no more room, if possible: of those that may be cut the widest gives way, down to LEAST."""
    taken = [min(width, max(room, LEAST)) if may else width for width, may in zip(widths, cut, strict=True)]
    while sum(taken) > room:
        widest = max((place for place, may in enumerate(cut) if may), key=taken.__getitem__, default=None)
        if widest is None or taken[widest] <= LEAST:
            break
        taken[widest] -= 1
    return taken


def _write(text: str) -> None:
    print(text, flush=True)


def _encode(document: object, indent: int | None) -> str:
    # Not orjson: payloads may hold integers beyond 64 bits.
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    return printable_json(json.dumps(document, indent=indent, ensure_ascii=ascii_only, default=_simple))


def _simple(value: Any) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
