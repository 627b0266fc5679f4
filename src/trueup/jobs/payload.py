"""Arguments and results as JSON that PostgreSQL's jsonb can hold and that comes back as it went in.

The fast path encodes once and looks at the bytes; only when something is off is the value walked to name the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ConfigDict
from pydantic_core import CoreConfig, PydanticSerializationError, from_json, to_json

from trueup.errors import InvalidArguments

SERIALIZED = CoreConfig(
    ser_json_inf_nan="constants",  # so that they can be seen and refused, instead of becoming null
    ser_json_bytes="base64",
    val_json_bytes="base64",
)
CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=False, **SERIALIZED)  # type: ignore[typeddict-item]
MOST_DEPTH = 200  # the JSON parser reads no deeper
MOST_DIGITS = 4_300  # Python refuses to print or parse longer integers (sys.get_int_max_str_digits)
_TOO_LARGE = 10**MOST_DIGITS

# If any of these bytes is in the JSON the value may hold something jsonb refuses; then it is walked. A null may be what a
# model with a configuration of its own has made of a NaN.
_SUSPECT = (rb"\u0000", b"NaN", b"Infinity", rb"\ud", b"null")


def encode_result(value: Any, limit: int) -> str:
    """A handler's return value as JSON. Raises InvalidArguments when it cannot be stored."""
    try:
        encoded = to_json(value, inf_nan_mode="constants", bytes_mode="base64")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidArguments(f"the result cannot be stored: {_fault_in(value, 'result') or error}") from None
    return checked(encoded, value, "result", limit)


def checked(encoded: bytes, value: Any, root: str, limit: int) -> str:
    """The encoded value as text, or InvalidArguments that names the place which cannot be stored."""
    if len(encoded) > limit:
        raise InvalidArguments(
            f"{root}: {len(encoded):,} bytes of JSON are over the limit of {limit:,} (TRUEUP_PAYLOAD_LIMIT); store it elsewhere and pass its key"
        )
    if any(mark in encoded for mark in _SUSPECT):
        fault = _fault_in(value, root)
        if fault is not None:
            raise InvalidArguments(fault)
    if not _readable(encoded):
        raise InvalidArguments(_fault_in(value, root) or f"{root}: JSON that cannot be read back")
    return encoded.decode()


def _readable(encoded: bytes) -> bool:
    """Whether it can be parsed again: the encoder goes deeper, and writes longer integers, than any parser reads."""
    if len(encoded) <= MOST_DIGITS and encoded.count(b"[") + encoded.count(b"{") <= MOST_DEPTH:
        return True
    try:
        from_json(encoded)
    except ValueError:
        return False
    return True


def explain(value: Any, root: str, error: Exception) -> InvalidArguments:
    """The error for a value that could not be encoded at all."""
    return InvalidArguments(_fault_in(value, root) or f"{root}: cannot be stored as JSON: {error}")


def _fault_in(value: Any, path: str, depth: int = 0) -> str | None:
    """The first place in `value` that jsonb cannot hold, and why."""
    if depth > MOST_DEPTH:
        return f"{path[:80]}…: nested deeper than {MOST_DEPTH} levels"
    match value:
        case None | bool():
            return None
        case int():
            return f"{path}: an integer of more than {MOST_DIGITS} digits" if abs(value) >= _TOO_LARGE else None
        case float():
            return (
                f"{path}: {value} is not a JSON number"
                if value != value or value in (float("inf"), float("-inf"))
                else None
            )
        case str():
            return _fault_in_text(value, path)
        case Mapping():
            return _first_fault(((f"{path}.{key}", key, item) for key, item in value.items()), depth)
        case list() | tuple() | set() | frozenset():
            return _first_fault(((f"{path}[{index}]", "", item) for index, item in enumerate(value)), depth)
    if hasattr(value, "__dict__"):
        fault = _first_fault(((f"{path}.{name}", name, item) for name, item in vars(value).items()), depth)
        if fault is not None:
            return fault
    try:
        to_json(value, inf_nan_mode="constants", bytes_mode="base64")
    except (PydanticSerializationError, ValueError, RecursionError):
        return f"{path}: {type(value).__name__} cannot be stored as JSON"
    return None


def _first_fault(items: Iterable[tuple[str, Any, Any]], depth: int) -> str | None:
    for path, key, item in items:
        fault = (_fault_in_text(key, path) if isinstance(key, str) else None) or _fault_in(item, path, depth + 1)
        if fault is not None:
            return fault
    return None


def _fault_in_text(text: str, path: str) -> str | None:
    if "\x00" in text:
        return f"{path}: text with a NUL character, which PostgreSQL cannot store"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"{path}: text with a lone surrogate at position {error.start}, which is not valid Unicode"
    return None
