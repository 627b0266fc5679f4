"""Hiding secrets in texts: every error, traceback, log line, event field and stored answer goes through `mask`.

A secret is known by the name in front of it (`named.py`: `password=…`, `"api_key": "…"`, `Authorization: …`), by its own shape
(`shapes.py`: a JSON Web Token, a private key, a key of AWS or Stripe), by its place (`places.py`: a URL, `user:…@host`, a line of
`.pgpass`), by the command that it is given to (`commands.py`: `AUTH …`, `sshpass -p …`), or by what quotes it (`quoted.py`: the
errors of pydantic and PostgreSQL).

Where a text can be read in two ways, more is hidden, and a host or a closing quote may be lost with the password. Apply it
before a text is encoded as JSON. Texts may be hostile, so nothing here backtracks over more than a few characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from trueup.masking.commands import mask_commands
from trueup.masking.mark import MASK
from trueup.masking.named import is_secret_name, mask_named
from trueup.masking.places import mask_places, mask_url
from trueup.masking.quoted import mask_quoted
from trueup.masking.shapes import mask_shapes

__all__ = ["MASK", "is_secret_name", "mask", "mask_named", "mask_url", "mask_value"]

NAMES, VALUE = frozenset({"name", "key"}), "value"


def mask(text: str) -> str:
    """The text with every secret in it replaced by MASK. Users, hosts, ports, databases and names of fields stay readable.

    Never raises, takes linear time, and changes nothing the second time. A raw blank ends a URL here, so the rest of a
    password that contains one is not found: `check_dsn` refuses those.
    """
    if "%" in text:
        text = _ENCODED.sub(lambda word: _mask_encoded(word[0]), text)
    if "&" in text and (read := _ENTITY.sub(lambda entity: _ENTITIES[entity[0]], text)) != text:
        return _masked(read) if _masked(read) != read else text
    return _masked(text)


def _masked(text: str) -> str:
    return mask_places(mask_shapes(mask_commands(mask_named(mask_quoted(text)))))


# A word with an encoded separator in it, such as a DSN in a query string. What comes before it is read as it is.
_ENCODED = re.compile(r"[\w%.~+*-]++", re.ASCII)
_SEPARATOR = re.compile("%(?:3[AaDd]|2[26])")
_ENTITIES = {"&quot;": '"', "&#34;": '"', "&#39;": "'", "&apos;": "'", "&#x27;": "'"}
_ENTITY = re.compile("|".join(_ENTITIES))


def _mask_encoded(word: str) -> str:
    if _SEPARATOR.search(word) is None:
        return word
    read = unquote(word)
    masked = _masked(read)
    return word if masked == read else quote(masked, safe="*")


def mask_value(value: Any, depth: int = 8) -> Any:
    """A value with the texts in it masked, and with whatever stands under a secret's name hidden whole."""
    match value:
        case str():
            return mask(value)
        case bytes() | bytearray():
            return mask(repr(bytes(value)))
        case Mapping() | list() | tuple() | set() | frozenset() if depth <= 0:
            return MASK
        case Mapping():
            hidden = VALUE if _is_a_named_secret(value) else None
            return {
                _text(key): MASK if _text(key).lower() == hidden else _under(key, item, depth - 1)
                for key, item in value.items()
            }
        case (str() | bytes() as name, str() | bytes()) if is_secret_name(_text(name)):
            return [_text(name), MASK]
        case list() | tuple() | set() | frozenset():
            return [mask_value(item, depth - 1) for item in value]
    return value


def _under(key: object, value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool) or not is_secret_name(_text(key)):
        return mask_value(value, depth)
    return MASK


def _is_a_named_secret(pair: Mapping[Any, Any]) -> bool:
    """Of `{"name": "DB_PASSWORD", "value": "…"}`, as variables and headers are listed."""
    names = (name for key, name in pair.items() if _text(key).lower() in NAMES)
    return any(isinstance(name, str | bytes) and is_secret_name(_text(name)) for name in names)


def _text(key: object) -> str:
    return mask(key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key))
