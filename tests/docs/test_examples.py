"""Every example in the documentation runs, on a database of its own."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, Block, blocks, title
from trueup import App

WITH_EXAMPLES = [page for page in PAGES if any(block.runs for block in blocks(page))]
WITHIN = 60.0  # seconds for one block


@pytest.fixture
def folder(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to work in, and nothing configured but the database."""
    for name in [name for name in os.environ if name.startswith("TRUEUP_") or name == "DATABASE_URL"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRUEUP_DATABASE_URL", database_url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=title)
def test_the_examples_of_a_page_run_from_top_to_bottom(page: Path, folder: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "example"}
    with asyncio.Runner() as runner:
        try:
            for block in blocks(page):
                if block.file is not None:
                    place = folder / block.file
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_text(block.code)
                elif block.runs:
                    run(block, namespace, runner)
        finally:
            for app in [value for value in namespace.values() if isinstance(value, App)]:
                runner.run(app.close())


def run(block: Block, namespace: dict[str, Any], runner: asyncio.Runner) -> None:
    """Run a block where it stands in its page, so that a traceback names the page's line; `await` works at its top level."""
    source = "\n" * (block.line - 1) + block.code
    code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(asyncio.wait_for(eval(code, namespace), WITHIN))
    else:
        exec(code, namespace)


def test_no_block_is_left_out() -> None:
    marked = {(title(page), block.mark) for page in PAGES for block in blocks(page) if block.language == "python"}
    assert {mark for _, mark in marked if not mark.startswith(("file: ", "run by: "))} == {""}
    for page, mark in marked:
        if mark.startswith("run by: "):
            assert page.removeprefix("docs/") in (ROOT / mark.removeprefix("run by: ")).read_text("utf-8")


def test_every_kind_of_guide_has_examples_that_run() -> None:
    assert DOCS.parent / "README.md" in WITH_EXAMPLES
    guides = [page for page in sorted((DOCS / "howto").glob("*.md")) if page not in WITH_EXAMPLES]
    assert [title(page) for page in guides] == [
        "docs/howto/django.md",  # its blocks are parts of examples/django_shop
        "docs/howto/moving.md",
        "docs/howto/restoring.md",
        "docs/howto/security.md",
        "docs/howto/sizing.md",
        "docs/howto/troubleshooting.md",
        "docs/howto/upgrading.md",
    ]
