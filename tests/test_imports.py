"""What importing trueup, and asking its command line for help, must not import. Time is not measured: modules are counted."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HEAVY = ("psycopg", "psycopg_pool", "pydantic", "pydantic_core", "rich", "typer")
WORKING = ("trueup.store", "trueup.work", "trueup.operate", "trueup.embedded", "trueup.cli")

DECLARATIONS = """
from trueup import Again, App, Context, Draft, Failed, Limit, Rate, Retry, Row, Stay, Table, Tick, To, TrueupError
app = App("postgresql://nobody@nowhere/nothing")
"""
RECONCILER = """
orders = app.table("orders", key="id", state="state")
@orders.reconcile("new", every="1m")
async def pay(row: Row) -> To: ...
"""
HELP = "from trueup.cli.main import main; import sys; assert main({arguments!r}) == 0"  # typer itself needs pydantic


@pytest.mark.parametrize(
    ("program", "kept_out"),
    [
        pytest.param("import trueup", (*HEAVY, *WORKING, "asyncio", "trueup.app"), id="the package"),
        pytest.param("import trueup; dir(trueup); trueup.__all__", (*HEAVY, *WORKING, "trueup.app"), id="its names"),
        pytest.param("from trueup import NotFound, Retry", (*HEAVY, *WORKING, "trueup.app"), id="small names"),
        pytest.param(DECLARATIONS, (*HEAVY, *WORKING), id="an App"),
        pytest.param(DECLARATIONS + RECONCILER, (*HEAVY, *WORKING), id="a reconciler"),
        pytest.param(
            DECLARATIONS + "@app.job\ndef add(a: int) -> int: ...",
            ("psycopg", "psycopg_pool", "rich", "typer", *WORKING),
            id="a job",
        ),
        *(
            pytest.param(
                HELP.format(arguments=arguments),
                ("psycopg", "psycopg_pool", "rich", "trueup.app", "trueup.store", "trueup.work"),
                id=f"trueup {' '.join(arguments)}",
            )
            for arguments in (["--help"], ["--version"], ["worker", "--help"], ["status", "--help"], ["jobs", "--help"])
        ),
    ],
)
def test_what_is_not_needed_yet_is_not_imported(program: str, kept_out: tuple[str, ...]) -> None:
    """Each module of it costs every process that starts, and most of them are never used by a program that only declares."""
    look = f"import sys; print('loaded:', *[name for name in {kept_out!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{program}\n{look}"], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"


def at_first_use(tree: ast.AST, *, locked: bool = False, called: bool = False) -> Iterator[ast.stmt]:
    """The imports inside functions that are not made under the lock a fork waits for."""
    for node in ast.iter_child_nodes(tree):
        if called and not locked and isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        under = isinstance(node, ast.With) and ast.unparse(node.items[0].context_expr) == "BUILDING"
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from at_first_use(node, locked=locked or under, called=called or inside)


def test_lazy_imports_hold_the_lock_that_a_fork_waits_for() -> None:
    """Otherwise the child of a fork may wait for ever for a module that another thread of its parent was importing."""
    program = (
        f"import sys\n{DECLARATIONS}\nprint(*(m.__file__ for n, m in sys.modules.items() if n.startswith('trueup.')))"
    )
    files = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    ours = [
        f"{Path(file).name}:{node.lineno}: {ast.unparse(node)}"
        for file in files
        for node in at_first_use(ast.parse(Path(file).read_text()))
        if "trueup" in ast.unparse(node) or "psycopg" in ast.unparse(node) or "pydantic" in ast.unparse(node)
    ]

    assert len(files) > 40
    assert not ours
    assert next(at_first_use(ast.parse("def f():\n    import trueup")))
