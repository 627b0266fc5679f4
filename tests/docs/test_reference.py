"""What the reference says is what the code says."""

from __future__ import annotations

import re

import pytest

import trueup
from tools import reference


@pytest.mark.parametrize("name", reference.MADE)
def test_a_reference_page_is_what_the_tool_makes_of_the_code(name: str) -> None:
    written = (reference.PAGES / name).read_text("utf-8")
    assert written == reference.rendered(name), "run `python -m tools.reference`"


def test_every_public_name_is_explained_on_the_api_page() -> None:
    page = (reference.PAGES / "api.md").read_text("utf-8")
    missing = [name for name in trueup.__all__ if not re.search(rf"\b{name}\b", page)]
    assert missing == []
