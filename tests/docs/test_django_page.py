"""The page on Django shows the example project as it is; tests/examples/ runs that."""

from __future__ import annotations

import pytest

from tests.docs.pages import DOCS, ROOT, Block, blocks

PAGE = DOCS / "howto/django.md"
PYTHON = [block for block in blocks(PAGE) if block.language == "python"]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"line {block.line}")
def test_a_block_is_part_of_the_file_it_names(block: Block) -> None:
    assert block.file is not None, "name the file of examples/django_shop that it is part of"
    assert f"\n{block.code}" in f"\n{(ROOT / block.file).read_text()}"


def test_the_settings_of_the_page_are_those_that_are_read() -> None:
    from trueup.django.application import OWN

    for name in OWN:
        assert f"| `{name}` |" in PAGE.read_text()
