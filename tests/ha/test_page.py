"""The page on failover shows the numbers that are checked in, and nothing in them speaks of this machine."""

from __future__ import annotations

import json

from tests.ha.page import NUMBERS, PAGE, with_numbers
from tests.ha.scenarios import SCENARIOS

MAX_BYTES = 40_000


def test_the_page_shows_the_numbers_that_are_checked_in() -> None:
    page = PAGE.read_text()
    assert with_numbers(page, json.loads(NUMBERS.read_text())) == page, "run `python -m tests.ha.page`"


def test_the_numbers_are_of_a_whole_run_in_which_everything_held() -> None:
    measured = json.loads(NUMBERS.read_text())
    assert [part["name"] for part in measured["parts"]] == [each.name for each in SCENARIOS]
    assert measured["verdict"] == "held"
    for part in measured["parts"]:
        lost = part["numbers"]["writes acknowledged and lost"]
        assert (lost > 0) == ("asynchronous" in part["title"])


def test_they_are_numbers_and_not_logs() -> None:
    text = NUMBERS.read_text()
    assert len(text) < MAX_BYTES
    assert "/tmp" not in text
