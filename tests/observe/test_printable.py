from __future__ import annotations

import json

import pytest

from trueup.observe.printable import printable, printable_json, printable_lines

HOSTILE = ["\n", "\r", "\x1b[2J", "\x85", "\u2028", "\u2029", "\u202e", "\x9b31m", "\x7f", "\x00"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_can_end_a_line_or_act_on_a_terminal(text: str) -> None:
    shown = printable(f"a{text}b")
    assert shown.isprintable()
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("text", HOSTILE)
def test_json_made_printable_is_one_line_and_means_the_same(text: str) -> None:
    document = printable_json(json.dumps({"error": text}, ensure_ascii=False))
    assert document.isprintable()
    assert json.loads(document) == {"error": text}


def test_letters_of_every_script_stay_as_they_are() -> None:
    assert printable("Grüße, 世界 ✓") == "Grüße, 世界 ✓"


def test_lines_of_a_traceback_stay_lines_behind_the_indent() -> None:
    assert printable_lines("File x\n\tcall()\x1b[31m\n", "  ") == "  File x\n      call()\\x1b[31m"
