"""Text from elsewhere, made safe to show: nothing in it can end a line, move the cursor or change colours."""

from __future__ import annotations

import re

# Characters that JSON does not escape although a terminal or a reader of lines may act on them.
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""The text on one line: whatever is not a printable character becomes its escape (`\n`, `\x1b`, `\u2028`)."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def printable_lines(text: str, indent: str = "") -> str:
    """The text with its own line breaks kept, every line behind `indent`, and nothing else that is not printable."""
    return "\n".join(indent + printable(line) for line in text.expandtabs(4).rstrip("\n").split("\n"))


def printable_json(document: str) -> str:
    """A JSON document that means the same and holds no character a terminal would act on."""
    return _RAW_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
