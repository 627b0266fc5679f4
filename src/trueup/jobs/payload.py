"""Arguments and results as JSON that PostgreSQL's jsonb can hold and returns unchanged.

The fast path encodes once and checks the bytes; the value is walked to name the place only when something is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import islice
from math import isfinite
from operator import is_
from types import NoneType
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import CoreConfig, PydanticSerializationError, from_json, to_json

from trueup.errors import InvalidArguments
from trueup.texts import describe, fault_in_text, type_name

SERIALIZED = CoreConfig(
    ser_json_inf_nan="constants",  # so that they are refused instead of becoming null
    ser_json_bytes="base64",
    val_json_bytes="base64",
)
CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=False, **SERIALIZED)  # type: ignore[typeddict-item]
MAX_DEPTH = 200  # the JSON parser reads no deeper
MAX_KEY_SHOWN = 80
MAX_PATH_SHOWN = 500
MAX_DIGITS = 4_300  # Python refuses to print or parse longer integers (sys.get_int_max_str_digits)
_TOO_LARGE = 10**MAX_DIGITS

# If any of these bytes is in the JSON it may hold something jsonb refuses; then it is read back and walked, since that shows what
# keys, computed fields and generators have become. A null may be what a model with a configuration of its own has made of a
# NaN, which only the value itself shows.
_SUSPECT = re.compile(rb"\\u0000|NaN|Infinity|\\ud|null")
_LEAVES = frozenset((str, int, float, bool, NoneType, bytes))
_SEQUENCES = frozenset((list, tuple, set, frozenset))
_CONTAINERS = (Mapping, list, tuple, set, frozenset, BaseModel)


def encode_result(value: Any, limit: int, root: str = "result") -> str:
    """A handler's return value, or what `root` names, as JSON. Raises InvalidArguments when it cannot be stored, whatever the code of
    the value's own class raises: the handler has done its work, and would otherwise be called again for it."""
    try:
        return encoded(value, limit, root)
    except (InvalidArguments, KeyboardInterrupt):
        raise
    except BaseException as error:
        said = f"{type_name(error)}: {describe(error)}"
        raise InvalidArguments(f"{root}: cannot be stored as JSON: reading it raised {said}") from None


def encoded(value: Any, limit: int, root: str) -> str:
    """A value without a type of its own as JSON. Raises InvalidArguments that names the place which cannot be stored."""
    value = _Finite(limit, root).of(value)
    try:
        written = to_json(value, inf_nan_mode="constants", bytes_mode="base64")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise explain(value, root, error) from None
    names_its_keys = isinstance(value, dict) and all(type(key) is str for key in value)
    return checked(written, value, root, limit, safe_objects=int(names_its_keys))


class _Finite:
    """Reads iterators, and counts the parts of a value: the encoder would write an endless iterator, or lists that contain one another
    many times, until the memory is full. Each part is at least a byte of JSON."""

    def __init__(self, limit: int, root: str) -> None:
        self._left = self._limit = limit
        self._root = root

    def of(self, value: Any, depth: int = 0) -> Any:
        """The same value if no iterator is in it."""
        kind = type(value)
        if kind in _LEAVES or depth > MAX_DEPTH:
            return value
        if kind is dict:
            items = self._each(value.values(), depth)
            return value if items is None else dict(zip(value, items, strict=True))
        if kind in _SEQUENCES:
            items = self._each(value, depth)
            return value if items is None else items
        if isinstance(value, Iterator):
            read = list(islice(value, self._left + 1))
            items = self._each(read, depth)
            return read if items is None else items
        return value

    def _each(self, values: Collection[Any], depth: int) -> list[Any] | None:
        """The items without iterators; None when they are as they were."""
        self._left -= len(values)
        if self._left < 0:
            raise InvalidArguments(_over(self._root, f"more than {self._limit:,} parts", self._limit))
        if all(type(item) in _LEAVES for item in values):
            return None
        items = [self.of(item, depth + 1) for item in values]
        return None if all(map(is_, items, values)) else items


def checked(encoded: bytes, value: Any, root: str, limit: int, *, safe_objects: int = 1) -> str:
    """The encoded value as text, or InvalidArguments that names the place which cannot be stored.

    The outermost objects, as many as given, are known to have distinct keys: for example those named by parameters.
    """
    if len(encoded) > limit:
        raise InvalidArguments(_over(root, f"{len(encoded):,} bytes of JSON", limit))
    if _SUSPECT.search(encoded):
        fault = _fault_in_json(encoded, root) or _fault_in(value, root)
        if fault is not None:
            raise InvalidArguments(fault)
    if not _readable(encoded):
        raise InvalidArguments(_fault_in(value, root) or f"{root}: JSON that cannot be read back")
    # The others may come from mappings whose keys were not texts: 1 and "1" are then the same key.
    if encoded.count(b"{") > safe_objects and (fault := _fault_in_json(encoded, root)) is not None:
        raise InvalidArguments(fault)
    return encoded.decode()


def _over(root: str, size: str, limit: int) -> str:
    return f"{root}: {size} are over the limit of {limit:,} (TRUEUP_PAYLOAD_LIMIT); store it elsewhere and pass its key"


def explain(value: Any, root: str, error: Exception) -> InvalidArguments:
    """The error for a value that could not be encoded at all."""
    return InvalidArguments(_fault_in(value, root, encodes=_encodes) or f"{root}: cannot be stored as JSON: {error}")


def _readable(encoded: bytes) -> bool:
    """Whether it can be parsed again: the encoder goes deeper, and writes longer integers, than any parser reads."""
    if len(encoded) <= MAX_DIGITS and encoded.count(b"[") + encoded.count(b"{") <= MAX_DEPTH:
        return True
    try:
        from_json(encoded)
    except ValueError:
        return False
    return True


class _Object(list[tuple[str, Any]]):
    """A JSON object with every key that was written, including duplicates."""


def _fault_in_json(encoded: bytes, root: str) -> str | None:
    """The first place in the JSON that jsonb cannot hold, or would lose, and why."""
    try:
        return _fault_in_read(json.loads(encoded, object_pairs_hook=_Object), root)
    except (ValueError, RecursionError):
        return None  # it cannot be read back; another check reports that


def _fault_in_read(value: Any, path: str) -> str | None:
    match value:
        case str():
            return fault_in_text(value, path)
        case float():
            return None if isfinite(value) else f"{path}: {value} is not a JSON number"
        case _Object():
            seen: set[str] = set()
            for key, item in value:
                place = _below(path, key)
                if key in seen:
                    return f"{place}: two keys of this mapping are equal in JSON, so one would be lost"
                seen.add(key)
                fault = fault_in_text(key, place) or _fault_in_read(item, place)
                if fault is not None:
                    return fault
        case list():
            for index, item in enumerate(value):
                fault = _fault_in_read(item, f"{path}[{index}]")
                if fault is not None:
                    return fault
    return None


def _below(path: str, key: object) -> str:
    """The path of a key, short enough to print. Keys may be of any length and depth."""
    try:
        text = str(key).replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()
    except Exception:
        text = f"<{type(key).__name__}>"
    shown = text if len(text) <= MAX_KEY_SHOWN else f"{text[:MAX_KEY_SHOWN]}…"
    return f"{path}.{shown}" if len(path) <= MAX_PATH_SHOWN else f"{path[:MAX_PATH_SHOWN]}…"


def _encodes(value: Any) -> bool:
    try:
        to_json(value, inf_nan_mode="constants", bytes_mode="base64")
    except (PydanticSerializationError, ValueError, RecursionError):
        return False
    return True


def _taken_as_read(_: Any) -> bool:
    """For values that were encoded as a whole, by rules of their own types."""
    return True


def _fault_in(value: Any, path: str, depth: int = 0, encodes: Callable[[Any], bool] = _taken_as_read) -> str | None:
    """The first place in `value` that jsonb cannot hold, and why. `encodes` judges objects that are not JSON by nature."""
    if depth > MAX_DEPTH:
        return f"{path[:80]}…: nested more than {MAX_DEPTH} levels deep"
    match value:
        case None | bool():
            return None
        case Enum():
            return _fault_in(value.value, path, depth, encodes)
        case int():
            return f"{path}: an integer of more than {MAX_DIGITS} digits" if abs(value) >= _TOO_LARGE else None
        case float():
            return None if isfinite(value) else f"{path}: {value} is not a JSON number"
        case str():
            return fault_in_text(value, path)
    for place, key, item in _parts(value, path):
        fault = fault_in_text(key, place) or _fault_in(item, place, depth + 1, encodes)
        if fault is not None:
            return fault
    if isinstance(value, _CONTAINERS) or encodes(value):
        return None
    return f"{path}: {type(value).__name__} cannot be stored as JSON"


def _parts(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """(path, key, item) of everything directly inside a container, a model or a dataclass."""
    match value:
        case Mapping():
            yield from ((_below(path, key), key if isinstance(key, str) else "", item) for key, item in value.items())
        case list() | tuple() | set() | frozenset():
            yield from ((f"{path}[{index}]", "", item) for index, item in enumerate(value))
        case BaseModel():
            yield from ((f"{path}.{name}", "", item) for name, item in value)
        case _ if is_dataclass(value):
            yield from ((f"{path}.{field.name}", "", getattr(value, field.name, None)) for field in fields(value))
