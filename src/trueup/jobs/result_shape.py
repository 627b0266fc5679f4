"""The type of a job's result by its annotation; reads stored results as that type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import NoneType
from typing import Any, Required

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from typing_extensions import TypedDict

from trueup.errors import ResultMismatch
from trueup.jobs.payload import CONFIG

_ANY = (Any, None, NoneType)


class ResultShape:
    """The type of a job's result. It is made into a validator when the first result is read."""

    def __init__(self, kind: str, hint: Any) -> None:
        self._kind = kind
        self._hint = hint
        self._adapter: TypeAdapter[Mapping[str, Any]] | None = None

    def load(self, stored: Any) -> Any:
        """A stored result as the annotation says. Raises ResultMismatch when it does not fit.

        A function without an annotation, or with one that JSON cannot be checked against, gets plain JSON values.
        """
        if stored is None or any(self._hint is each for each in _ANY):
            return stored
        if self._adapter is None:
            self._adapter = _adapter(self._hint)
            if self._adapter is None:
                self._hint = Any
                return stored
        try:
            return self._adapter.validate_json(json.dumps({"result": stored}))["result"]
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ResultMismatch(
                f"{self._kind}: the stored result does not fit the function's return annotation: {place}: {first['msg']}"
            ) from None


def _adapter(hint: Any) -> TypeAdapter[Mapping[str, Any]] | None:
    make: Any = TypedDict  # made at run time, which type checkers do not follow
    shape = make("Returned", {"result": Required[hint]})
    shape.__pydantic_config__ = CONFIG
    try:
        return TypeAdapter(shape)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return None
