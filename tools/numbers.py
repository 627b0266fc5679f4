"""Writes the last column of "Size" on the page about the architecture: `python -m tools.numbers`.

A test compares that column with the code and allows for some growth in between.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path

from tests.support.database import TestServer
from tools.measure import LARGE_CLASS, LONG_FUNCTION, measured
from tools.walks import ROOT, Entered, walked

PAGE = Path(__file__).parents[1] / "docs/explanation/architecture.md"
_ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<before>[\d, ]+) \| (?P<now>[\d, ]+) \|$", re.MULTILINE)


def shown(page: str) -> dict[str, list[int]]:
    """The last column of the table, by the first one."""
    _, _, rest = page.partition("\n## Size\n")
    rows = _ROW.finditer(rest.partition("\n## ")[0])
    return {row["what"]: [int(each.replace(",", "")) for each in row["now"].split(", ")] for row in rows}


def counted(walks: dict[str, Entered]) -> dict[str, list[int]]:
    """The same, of the code as it is."""
    size = measured(ROOT)
    numbers = {
        "files": size["files"],
        "lines": size["lines"],
        "lines of the median file": size["median file"],
        "lines of the longest file": str(size["longest file"]).rpartition(" ")[2],
        f"functions over {LONG_FUNCTION} lines": size[f"functions over {LONG_FUNCTION} lines"],
        f"classes over {LARGE_CLASS} methods": size[f"classes over {LARGE_CLASS} methods"],
        "packages that import each other": size["pairs of packages that import each other"],
    }
    steps = {name: [len(entered), len({module for module, _ in entered})] for name, entered in walks.items()}
    named = {f"a {name}" + (": functions, modules" if name == "job" else ""): each for name, each in steps.items()}
    return {what: [int(float(str(number)))] for what, number in numbers.items()} | named


def written(page: str, numbers: dict[str, list[int]]) -> str:
    def row(found: re.Match[str]) -> str:
        now = numbers.get(found["what"])
        if now is None:
            return found[0]
        return f"| {found['what']} | {found['before']} | {', '.join(f'{each:,}' for each in now)} |"

    return _ROW.sub(row, page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, TestServer(Path(directory)) as server, server.database() as url:
        numbers = counted(asyncio.run(walked(url)))
    PAGE.write_text(written(PAGE.read_text("utf-8"), numbers), "utf-8")
