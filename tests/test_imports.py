"""What importing trueup, and asking its command line for help, must not import. Time is not measured: modules are counted."""

from __future__ import annotations

import subprocess
import sys

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
