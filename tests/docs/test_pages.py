"""The pages themselves: links lead somewhere, tests they name exist, nothing is left to be written."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, prose, title

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(prose(page)) if "://" not in link and not leads_somewhere(page, link)]
    assert broken == []


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or anchor in {slug(heading) for heading in HEADING.findall(prose(target))}


def slug(heading: str) -> str:
    """The anchor of a heading, as the site and code hosts make it for the headings we write."""
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


GUIDES = [page for page in PAGES if page.is_relative_to(DOCS) and page.parent.name != "decisions"]


@pytest.mark.parametrize("page", GUIDES, ids=title)
def test_no_page_is_a_dead_end(page: Path) -> None:
    links = [link.partition("#")[0] for link in LINK.findall(prose(page))]
    assert [link for link in links if link.endswith(".md")], "link to the page that a reader should read next"


def test_the_index_leads_to_every_page() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(prose(index)) if "://" not in link}
    assert [title(page) for page in GUIDES if page != index and page not in linked] == []


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    missing = [f"{path}::{name}" for path, name in TEST.findall(prose(page)) if not is_test(ROOT / path, name)]
    assert missing == []


def is_test(path: Path, name: str) -> bool:
    return path.is_file() and (not name or name in functions(path))


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_no_page_is_left_to_be_written(page: Path) -> None:
    assert not re.search(r"\b(TODO|FIXME|TBD|XXX)\b", page.read_text("utf-8"))


def test_every_decision_is_numbered_and_dated() -> None:
    decisions = sorted(page for page in (DOCS / "decisions").glob("*.md") if page.name != "index.md")
    numbers = [page.name[:4] for page in decisions]
    assert numbers == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    undated = [
        page.name for page in decisions if not re.search(r"^Date: \d{4}-\d\d-\d\d$", page.read_text(), re.MULTILINE)
    ]
    assert undated == []


def test_every_decision_is_on_the_list_of_decisions() -> None:
    listed = set(LINK.findall((DOCS / "decisions/index.md").read_text()))
    assert {page.name for page in (DOCS / "decisions").glob("0*.md")} <= listed
