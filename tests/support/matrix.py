"""A plugin of pytest: which cells of a test's matrix `make test` runs. `make proof` (`--proof`) runs all of them.

The matrix of a test is made by its `parametrize` marks and parametrised fixtures: each argument is an axis, each case a cell. Of a
test marked `@pytest.mark.matrix`, `make test` runs a covering selection: each value of each axis is in at least one of its cells.
With `@pytest.mark.matrix(pairs=("mode", "stage"))` so is each pair of values of the axes named. A test without the mark runs whole.

What is large by its numbers instead, of rows or of examples, takes them from `count(few, proof=many)`.

A test that costs seconds and proves at length what a quicker one notices is marked `@pytest.mark.proof(beside="test_quicker")`: it
runs in `make proof` alone, or when it is named on the command line. `beside` names a function of the same file, or
`tests/folder/test_file.py::test_quicker`; it must be one that `make test` runs.

The selection is made of what is left after `-k`, `-m` and the ids on the command line, so a cell that is named is always run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest

Cell = Mapping[str, int]  # for each axis, the number of its value
_proof = False  # known before any test is imported

Goal = tuple[tuple[str, int], ...]  # a value of an axis, or values of two axes together


def count(few: int, *, proof: int) -> int:
    """How many rows, seconds or examples: enough to notice the mistake, and more of the same with `--proof`."""
    return proof if _proof else few


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proof", action="store_true", help="run every cell of the tests marked `matrix`")


def pytest_configure(config: pytest.Config) -> None:
    global _proof
    _proof = bool(config.getoption("--proof"))
    config.addinivalue_line(
        "markers",
        "matrix(pairs=()): each value of each axis is run, and each pair of the axes named; all of it with --proof",
    )
    config.addinivalue_line(
        "markers",
        "proof(beside): run with --proof alone; `beside` names the quicker test that notices the same mistake",
    )


@pytest.hookimpl(trylast=True)  # of what is left after the other choices
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--proof"):
        return
    left = [*left_whole(items, config.args), *left_to_proof(items)]
    config.hook.pytest_deselected(items=left)
    places = set(map(id, left))
    items[:] = [item for item in items if id(item) not in places]


def goals(cell: Cell, pairs: Iterable[str] = ()) -> set[Goal]:
    """What running this cell covers: its values, and those of the axes in `pairs` two by two."""
    together = [(axis, cell[axis]) for axis in sorted(pairs)]
    return {(value,) for value in cell.items()} | set(combinations(together, 2))


def covering(cells: Sequence[Cell], pairs: Iterable[str] = ()) -> list[int]:
    """The places of cells that together cover what all of them cover; the same ones in every process.

    The cell that covers most goes first. Among equals it is the one whose values were chosen least so far, so that the
    selection spreads over all axes, and then the first.
    """
    reaches = [goals(cell, pairs) for cell in cells]
    missing = set().union(*reaches)
    used: Counter[tuple[str, int]] = Counter()
    chosen = []
    while missing:
        best = max(
            range(len(cells)),
            key=lambda place: (
                len(reaches[place] & missing),
                -sum(used[each] for each in cells[place].items()),
                -place,
            ),
        )
        chosen.append(best)
        missing -= reaches[best]
        used.update(cells[best].items())
    return sorted(chosen)


def left_whole(items: Iterable[pytest.Item], arguments: Iterable[str]) -> list[pytest.Item]:
    """The tests marked `proof`, but for those that are named on the command line."""
    named = [argument.partition("[")[0] for argument in arguments if "::" in argument]
    return [
        item
        for item in items
        if item.get_closest_marker("proof") and not any(each.endswith(item.nodeid.partition("[")[0]) for each in named)
    ]


def left_to_proof(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The cells of marked tests that a covering selection does without."""
    matrices: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("matrix"):
            matrices[item.nodeid.partition("[")[0]].append(item)
    return [item for matrix in matrices.values() for item in _without(matrix)]


def _without(matrix: list[pytest.Item]) -> list[pytest.Item]:
    mark = matrix[0].get_closest_marker("matrix")
    assert mark is not None
    cells = cells_of(matrix)
    if wrong := mistake(mark, cells):
        raise pytest.UsageError(f"{matrix[0].nodeid.partition('[')[0]}: {wrong}")
    chosen = set(covering(cells, mark.kwargs.get("pairs", ())))
    return [item for place, item in enumerate(matrix) if place not in chosen]


def cells_of(matrix: Sequence[pytest.Item]) -> list[Cell]:
    """The arguments of one `parametrize` are one axis: its rows are what somebody wrote, and each of them is a value."""
    axes = [tuple(axis) for axis in _axes(matrix[0])]
    numbers: dict[str, dict[tuple[int, ...], int]] = defaultdict(dict)
    cells: list[Cell] = []
    for item in matrix:
        values = item.callspec.params  # type: ignore[attr-defined]
        same = {",".join(axis): tuple(id(values[name]) for name in axis) for axis in axes}
        cells.append({name: numbers[name].setdefault(which, len(numbers[name])) for name, which in same.items()})
    return cells


def _axes(item: pytest.Item) -> Iterable[list[str]]:
    call: Any = getattr(item, "callspec", None)
    left = list(call.params) if call else []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        left = [name for name in left if name not in names]
        yield names
    yield from ([name] for name in left)  # parametrised fixtures


def mistake(mark: pytest.Mark, cells: Sequence[Cell]) -> str | None:
    """What is wrong with a mark, if anything is."""
    if mark.args or set(mark.kwargs) - {"pairs"}:
        return "the mark `matrix` takes pairs=(axis, axis, …) and nothing else"
    if not all(cells):
        return "a test marked `matrix` is parametrised"
    pairs = mark.kwargs.get("pairs", ())
    if isinstance(pairs, str) or (pairs and len(set(pairs)) < 2):
        return f"`pairs` names two axes or more, not {pairs!r}"
    if unknown := sorted(set(pairs) - set(cells[0])):
        return f"`pairs` names {unknown}, and the axes are {sorted(cells[0])}"
    return None
