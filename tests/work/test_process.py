"""One App in a program of its own: several event loops one after another, and no warning of any kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TWICE = """
import asyncio, os
from trueup import App

app = App(os.environ["URL"])

@app.job
async def double(n: int) -> int:
    return 2 * n

async def main(n: int) -> None:
    async with app.worker():
        print(await (await double.enqueue(n)).result(timeout="20s"))
    await app.close()

asyncio.run(main(1))
asyncio.run(main(2))
"""


def test_one_app_serves_two_event_loops_one_after_another(database_url: str, tmp_path: Path) -> None:
    program = tmp_path / "twice.py"
    program.write_text(TWICE)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", program],
        env={"URL": database_url, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["2", "4"]), done.stderr
    # asyncio's debug mode says when a machine was slow; that is not about us
    assert [line for line in done.stderr.splitlines() if not line.startswith("Executing <")] == []
