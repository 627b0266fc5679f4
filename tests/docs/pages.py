"""The pages of the documentation, and the code in them.

Blocks fenced as `python` are run from top to bottom, in one namespace per page. A comment on the line before the fence
changes that: `<!-- file: jobs.py -->` writes the block to that file, `<!-- run by: tests/docs/test_blocks.py -->` leaves it to a
test that has what it needs. Blocks in tabs (`=== "sync"`) are indented.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *DOCS.rglob("*.md")]
)

_FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>.+?) -->\n)?^(?P<indent> *)(?P<fence>`{3,})(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int  # of its first line of code
    language: str
    mark: str
    code: str

    @property
    def file(self) -> str | None:
        """Where it is to be written, if it is to be."""
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else None

    @property
    def runs(self) -> bool:
        return self.language == "python" and not self.mark


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _unindented(found: re.Match[str]) -> str:
    """The code of a block without the indentation of its fence."""
    return re.sub(rf"^{found['indent']}", "", found["code"], flags=re.MULTILINE)


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("code")) + 1,
            found["language"],
            found["mark"] or "",
            _unindented(found),
        )
        for found in _FENCE.finditer(text)
    ]


@cache
def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))
