"""The row that a handler gets when its parameter has no annotation: read-only, with columns as attributes and items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Row(Mapping[str, Any]):
    """`row.id` and `row["id"]` are the same. It is the row as it was at the claim; outcomes change the stored row.

    A column called like something that every mapping has (`keys`, `items`, `values`, `get`) is there as item only.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", dict(values))

    def __getitem__(self, column: str) -> Any:
        return self._values[column]

    def __getattr__(self, column: str) -> Any:
        try:
            return object.__getattribute__(self, "_values")[column]
        except KeyError:
            raise AttributeError(f"the row has no column {column!r}; it has {', '.join(self._values)}") from None

    def __setattr__(self, column: str, value: Any) -> None:
        raise AttributeError(f"a row is read-only; return Stay({column}=…) or To(…, {column}=…) to change it")

    def __delattr__(self, column: str) -> None:
        raise AttributeError("a row is read-only")

    def __reduce__(self) -> tuple[type[Row], tuple[dict[str, Any]]]:
        # A copy may go to another process; setting slots, as pickle would, is refused.
        return type(self), (self._values,)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"
