"""The covering selection covers, is the same everywhere, and leaves nothing out but what others cover."""

from __future__ import annotations

import ast
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.support.matrix import Cell, covering, mistake

ROOT = Path(__file__).parents[2]


def matrix(*sizes: int) -> list[Cell]:
    axes = "abcdefgh"[: len(sizes)]
    return [dict(zip(axes, values, strict=True)) for values in product(*map(range, sizes))]


def holed(seed: int) -> list[Cell]:
    """A matrix some of whose cells make no sense."""
    chance = random.Random(seed)
    cells = matrix(*(chance.randint(1, 5) for _ in range(chance.randint(1, 4))))
    return chance.sample(cells, chance.randint(1, len(cells)))


MATRICES = [matrix(1), matrix(7), matrix(47, 3), matrix(6, 6), matrix(4, 3, 2, 5), *map(holed, range(40))]


@pytest.mark.parametrize("cells", MATRICES)
def test_each_value_and_each_pair_of_the_axes_named_is_chosen(cells: list[Cell]) -> None:
    axes = sorted(cells[0])
    for width in (0, *range(2, len(axes) + 1)):
        pairs = axes[:width]
        chosen = [cells[place] for place in covering(cells, pairs)]
        assert {value for cell in chosen for value in cell.items()} == {
            value for cell in cells for value in cell.items()
        }
        for one, other in combinations(pairs, 2):
            assert {(cell[one], cell[other]) for cell in chosen} == {(cell[one], cell[other]) for cell in cells}


@pytest.mark.parametrize(
    ("sizes", "pairs", "most"),
    [
        ((47, 3), "", 47),
        ((6, 6), "", 6),
        ((6, 6), "ab", 36),
        ((4, 3, 2, 5), "", 5),
        ((4, 3, 2, 5), "abcd", 26),
        ((9,), "", 9),
    ],
)
def test_it_is_small(sizes: tuple[int, ...], pairs: str, most: int) -> None:
    assert len(covering(matrix(*sizes), pairs)) <= most


def test_the_values_of_a_short_axis_are_spread_over_a_long_one() -> None:
    cells = matrix(47, 3)
    counts = [sum(cells[place]["b"] == value for place in covering(cells)) for value in range(3)]
    assert max(counts) - min(counts) <= 1


FILE = """
import pytest

ROWS = [("x", 1), ("x", 2), ("y", 1)]

@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["m1", "m2", "m3"])
@pytest.mark.parametrize("stage", ["s1", "s2"])
def test_values(mode, stage): pass

@pytest.mark.matrix(pairs=("mode", "stage"))
@pytest.mark.parametrize("other", [1, 2, 3])
@pytest.mark.parametrize("mode", ["m1", "m2"])
@pytest.mark.parametrize("stage", ["s1", "s2"])
def test_pairs(mode, stage, other): pass

@pytest.mark.matrix
@pytest.mark.parametrize("which, number", ROWS)
@pytest.mark.parametrize("mode", ["m1", "m2"])
def test_rows(which, number, mode): pass

@pytest.mark.parametrize("mode", ["m1", "m2"])
@pytest.mark.parametrize("stage", ["s1", "s2"])
def test_whole(mode, stage): pass

@pytest.mark.proof(beside="test_whole")
@pytest.mark.parametrize("mode", ["m1", "m2"])
def test_at_length(mode): pass
"""


def collected(directory: Path, source: str, *options: str) -> list[str]:
    (directory / "test_file.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(directory),
        "-p",
        "tests.support.matrix",
    ]
    command += ["-p", "no:cacheprovider", "--collect-only", "-q", *(options or [str(directory / "test_file.py")])]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and importing them all takes seconds
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return [line for line in (done.stdout + done.stderr).splitlines() if "::" in line]


@pytest.mark.slow
def test_only_marked_tests_are_thinned_out_and_a_row_of_arguments_is_one_value(tmp_path: Path) -> None:
    ids = collected(tmp_path, FILE)
    names = ("values", "pairs", "rows", "whole", "at_length")
    assert [sum(f"test_{name}[" in each for each in ids) for name in names] == [3, 4, 3, 4, 0]
    assert len(collected(tmp_path, FILE, "--proof", str(tmp_path))) == 6 + 12 + 6 + 4 + 2


@pytest.mark.slow
def test_a_cell_that_is_asked_for_is_run(tmp_path: Path) -> None:
    left = set(collected(tmp_path, FILE, "--proof", str(tmp_path))) - set(collected(tmp_path, FILE))
    (_, cell), *_ = sorted(each.split("::") for each in left if "test_values" in each)
    assert len(collected(tmp_path, FILE, f"{tmp_path}/test_file.py::{cell}")) == 1
    assert len(collected(tmp_path, FILE, str(tmp_path), "-k", "test_values and m2 and s2")) == 1
    assert len(collected(tmp_path, FILE, f"{tmp_path}/test_file.py::test_at_length")) == 2
    assert len(collected(tmp_path, FILE, f"{tmp_path}/test_file.py::test_at_length[m2]")) == 1


def test_what_is_left_to_the_proof_names_a_quicker_test_that_is_run() -> None:
    """Nothing is lost: the mistake that a test marked `proof` would find fails `make test`, too."""
    left = dict(marked_proof())
    assert left
    wrong = {test: beside for test, beside in left.items() if beside in left or not exists(beside)}
    assert wrong == {}


def marked_proof() -> Iterator[tuple[str, str]]:
    """The tests that are marked `proof`, and those that they name."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        source = file.read_text()
        if "mark.proof(" not in source or file == Path(__file__):
            continue
        place = file.relative_to(ROOT).as_posix()
        for function in ast.walk(ast.parse(source)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for mark in function.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proof":
                        ((_, beside),) = ((each.arg, ast.literal_eval(each.value)) for each in mark.keywords)
                        yield f"{place}::{function.name}", beside if "::" in beside else f"{place}::{beside}"


def exists(test: str) -> bool:
    file, _, name = test.partition("::")
    return (ROOT / file).is_file() and re.search(
        rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.M
    ) is not None


@pytest.mark.parametrize(
    ("mark", "cells", "said"),
    [
        (pytest.mark.matrix("a"), matrix(2, 2), "the mark `matrix` takes pairs=(axis, axis, …) and nothing else"),
        (
            pytest.mark.matrix(pair=("a", "b")),
            matrix(2, 2),
            "the mark `matrix` takes pairs=(axis, axis, …) and nothing else",
        ),
        (pytest.mark.matrix(pairs="ab"), matrix(2, 2), "`pairs` names two axes or more, not 'ab'"),
        (pytest.mark.matrix(pairs=("a",)), matrix(2, 2), "`pairs` names two axes or more, not ('a',)"),
        (pytest.mark.matrix(pairs=("a", "c")), matrix(2, 2), "`pairs` names ['c'], and the axes are ['a', 'b']"),
        (pytest.mark.matrix, [{}], "a test marked `matrix` is parametrised"),
        (pytest.mark.matrix, matrix(2, 2), None),
        (pytest.mark.matrix(pairs=("a", "b")), matrix(2, 2), None),
    ],
)
def test_a_mark_that_makes_no_sense_is_named(mark: pytest.MarkDecorator, cells: list[Cell], said: str | None) -> None:
    assert mistake(mark.mark, cells) == said


@pytest.mark.slow
def test_a_mark_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    said = "\n".join(collected(tmp_path, FILE.replace("matrix\n", "matrix('mode')\n", 1)))
    assert "test_file.py::test_values: the mark `matrix` takes pairs=" in said
