"""Texts, extras and words that the pages quote exist in the code."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache

import pytest

from tests.docs.pages import DOCS, ROOT

SOURCE = ROOT / "src/trueup"
PAGE = (DOCS / "howto/troubleshooting.md").read_text("utf-8")
QUOTED = re.findall(r'^### "(.+)"$', PAGE, re.MULTILINE)
GLOSSARY = (DOCS / "glossary.md").read_text("utf-8")
WORDS = re.findall(r"^\*\*(.+?)\*\*", GLOSSARY, re.MULTILINE)


@cache
def texts() -> list[str]:
    """Every text in the source, with … where a value is put in."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


@cache
def code() -> str:
    paths = [path for path in SOURCE.rglob("*") if path.suffix in (".py", ".sql")]
    return "\n".join([path.read_text("utf-8") for path in paths]).lower()


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_text_that_the_page_quotes_is_one_that_the_code_writes(quoted: str) -> None:
    assert any(quoted in text for text in texts()), "quote it as the code has it, with … for values"


def test_the_page_quotes_texts() -> None:
    assert len(QUOTED) > 15


def test_every_extra_is_explained() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"^\| `(\w+)` \|", (DOCS / "reference/extras.md").read_text("utf-8"), re.MULTILINE)) == set(
        extras
    )


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_the_glossary_is_the_word_in_the_code(word: str) -> None:
    stem = re.escape(word.replace(" ", "_")).replace("_", "[_ ]")
    assert re.search(rf"(?<![a-z]){stem}", code())


def test_words_are_sorted_within_their_part() -> None:
    users, maintainers = GLOSSARY.split("## For maintainers")
    for part in (users, maintainers):
        words = re.findall(r"^\*\*(.+?)\*\*", part, re.MULTILINE)
        assert words == sorted(words)
