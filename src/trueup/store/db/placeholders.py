"""Statements as other than psycopg's own cursors take them: `%(name)s` for values becomes $1, $2, …, and `%%` a percent sign."""

from __future__ import annotations

import re
from functools import cache

PLACEHOLDER = re.compile(rb"%\((\w+)\)s|%%")


@cache
def numbered(query: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The statement with numbers for its parameters, and their names in that order."""
    names = tuple(dict.fromkeys(found[1] for found in PLACEHOLDER.finditer(query) if found[1] is not None))
    numbers = {name: b"$%d" % number for number, name in enumerate(names, 1)}
    text = PLACEHOLDER.sub(lambda found: b"%" if found[1] is None else numbers[found[1]], query)
    return text, tuple(name.decode() for name in names)
