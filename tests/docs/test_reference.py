"""What the reference says is what the code says."""

from __future__ import annotations

import re

import pytest

import trueup
from tools import diagrams, reference


@pytest.mark.parametrize("name", reference.MADE)
def test_a_reference_page_is_what_the_tool_makes_of_the_code(name: str) -> None:
    written = (reference.PAGES / name).read_text("utf-8")
    assert written == reference.rendered(name), "run `python -m tools.reference`"


def test_every_public_name_is_explained_on_the_api_page() -> None:
    page = (reference.PAGES / "api.md").read_text("utf-8")
    missing = [name for name in trueup.__all__ if not re.search(rf"\b{name}\b", page)]
    assert missing == []


@pytest.mark.parametrize("name", diagrams.DRAWN)
def test_a_diagram_is_what_the_tool_draws(name: str) -> None:
    assert (diagrams.ASSETS / name).read_text("utf-8") == diagrams.DRAWN[name](), "run `make reference`"


def test_every_public_class_has_its_signature_on_the_page() -> None:
    page = (reference.PAGES / "signatures.md").read_text("utf-8")
    headings = set(re.findall(r"^###? (\w+)$", page, re.MULTILINE))
    assert {name for name in trueup.__all__ if isinstance(getattr(trueup, name), type)} <= headings
    assert not re.search(r"<[\w.]+ object at 0x|<factory>", page), "a default that has no readable form"
