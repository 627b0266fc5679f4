"""The page on the architecture, and the tree in CONTRIBUTING, name what is there, and leave out no folder."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT
from tools import numbers
from tools.walks import walked

PACKAGE = ROOT / "src/trueup"
PAGE = (DOCS / "explanation/architecture.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py|\.sql))`", PAGE)))
FOLDERS = sorted(
    str(init.parent.relative_to(PACKAGE)) for init in PACKAGE.rglob("__init__.py") if init.parent != PACKAGE
)


@pytest.mark.parametrize("name", NAMED)
def test_what_the_page_names_exists(name: str) -> None:
    assert (PACKAGE / name).exists() or (ROOT / name).exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_page_names_every_folder_or_the_one_above(folder: str) -> None:
    assert any(f"`{each}/`" in PAGE for each in (folder, folder.partition("/")[0]))


TESTED_AS = {  # folders whose tests have another name than the folder
    "django/management": "django/test_admin.py",
    "operate/runs": "operate/test_reconcilers.py",
    "store/rows/compose": "store/rows/test_golden.py",
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_tests_of_a_folder_are_where_its_name_says(folder: str) -> None:
    """`a/b/` has its tests in `tests/a/b/`, or in `tests/a/test_b*.py` when they are few."""
    tests = ROOT / "tests"
    if folder.startswith("django/m"):  # what Django prescribes: a command and its migrations
        folder = "django/management"
    if (named := TESTED_AS.get(folder)) is not None:
        assert (tests / named).is_file()
        return
    above, _, name = folder.rpartition("/")
    assert any((tests / folder).glob("test_*.py")) or any((tests / above).glob(f"test_{name}*.py"))


def test_the_tree_in_contributing_lists_every_package() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    tree = contributing.partition("```text\nsrc/trueup/\n")[2].partition("```")[0]
    missing = [folder for folder in FOLDERS if "/" not in folder and not re.search(rf"\b{folder}\b", tree)]
    assert missing == []


BESIDE = {  # named in a walk and no part of it: what happens before it, or only sometimes
    "job": {"work/listener.py"},
    "tick": {"work/declarer.py"},
    "row": {"store/rows/checks.py", "work/rows/renewer.py", "store/rows/apart.py"},
    "lease": {"integrations/redis.py"},
}


@pytest.mark.asyncio
async def test_the_page_has_the_walks_and_the_numbers_of_the_code(database_url: str) -> None:
    """`python -m tools.walks row` shows the walk, `python -m tools.numbers` writes the numbers."""
    walks = await walked(database_url)
    for name, entered in walks.items():
        section = re.search(rf"## A {name},.*?(?=\n## )", PAGE, re.DOTALL)
        assert section is not None, name
        told = set(re.findall(r"`([a-z_/]+\.py)`", section[0]))
        assert told - {module for module, _ in entered} == BESIDE[name], name
    page, code = numbers.shown(PAGE), numbers.counted(walks)
    assert page.keys() == code.keys()
    for what, counts in code.items():
        assert counts == [pytest.approx(each, rel=0.1, abs=3) for each in page[what]], (
            f"{what}: python -m tools.numbers"
        )
