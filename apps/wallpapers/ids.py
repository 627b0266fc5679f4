"""The ids of wallpapers: `wlpr_`, then a moment and chance, so that they sort by age and cannot be guessed."""

from __future__ import annotations

import re
import secrets
import time

PREFIX = "wlpr_"
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: nothing that is mistaken for something else
TIME, CHANCE = 10, 16  # characters: 50 bits of milliseconds, 80 bits of chance
PATTERN = re.compile(f"{PREFIX}[{ALPHABET}]{{{TIME + CHANCE}}}", re.ASCII)


def new_id() -> str:
    """Never the same twice. The process's clock only decides how it sorts."""
    return f"{PREFIX}{_spelled(time.time_ns() // 1_000_000, TIME)}{_spelled(secrets.randbits(5 * CHANCE), CHANCE)}"


def is_id(text: str) -> bool:
    return PATTERN.fullmatch(text) is not None


def _spelled(number: int, length: int) -> str:
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(length)))
