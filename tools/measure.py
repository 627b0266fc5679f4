"""The size and shape of a tree of Python code, to compare before and after a change: `python -m tools.measure [DIRECTORY]`.

For `apps`, or a directory of that name from another revision (`git archive REVISION apps | tar -x -C …`), the lines of each application.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

LONG_FUNCTION = 40  # lines
LARGE_CLASS = 20  # methods
NOT_THE_APPLICATION = {
    "anvil",
    "check",
    "demo",
    "hostile",
    "seed",
    "sink",
}  # what demos, tests and local runs are made of


def measured(root: Path) -> dict[str, object]:
    """What there is below `root`, a package."""
    files = {path: path.read_text("utf-8") for path in sorted(root.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in files.items()}
    lines = {path: text.count("\n") for path, text in files.items()}
    longest = max(lines, key=lambda path: lines[path])
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    edges = {edge for path, tree in trees.items() for edge in _edges(root, path, tree)}
    return {
        "files": len(files),
        "lines": sum(lines.values()),
        "median file": median(lines.values()),
        "longest file": f"{longest.relative_to(root)} {lines[longest]}",
        f"functions over {LONG_FUNCTION} lines": sum(_length(node) > LONG_FUNCTION for node in functions),
        f"classes over {LARGE_CLASS} methods": sum(_methods(node) > LARGE_CLASS for node in classes),
        "import edges between packages": len(edges),
        "pairs of packages that import each other": sum((b, a) in edges for a, b in edges if a < b),
    }


def applications(root: Path) -> dict[str, int]:
    """The lines of Python that are not empty, by folder."""
    counted: dict[str, int] = {}
    for path in sorted(root.rglob("*.py")):
        folder, *rest = path.relative_to(root).with_suffix("").parts
        if rest and not NOT_THE_APPLICATION & set(rest):
            counted[folder] = counted.get(folder, 0) + sum(bool(line.strip()) for line in path.open(encoding="utf-8"))
    return counted


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _methods(node: ast.ClassDef) -> int:
    return sum(isinstance(each, FUNCTIONS) for each in node.body)


def _edges(root: Path, path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """From the package of this file to those it imports: the first folder below the root, or the module there."""
    here = path.relative_to(root).with_suffix("").parts[0]
    for node in ast.walk(tree):
        modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            package, _, rest = module.partition(".")
            there = rest.partition(".")[0]
            if package == root.name and there and there != here:
                yield here, there


if __name__ == "__main__":
    given = Path(sys.argv[1] if len(sys.argv) > 1 else "src/trueup")
    json.dump(applications(given) if given.name == "apps" else measured(given), sys.stdout, indent=2)
    print()
