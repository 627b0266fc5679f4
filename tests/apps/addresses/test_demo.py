"""The demo: it proves what it says, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.chain.anvil import program
from tests.support import warm
from tests.support.memory import in_memory
from tests.support.processes import ROOT


@pytest.fixture
def place() -> Iterator[Path]:
    """Not below pytest's own directory: as root, PostgreSQL runs as nobody, who could not pass through."""
    with tempfile.TemporaryDirectory(prefix="addresses-", dir=in_memory()) as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.mark.proof(
    beside="tests/apps/addresses/test_processes.py::test_a_day_from_the_tick_to_the_checkpoint_with_a_reorganisation_in_between"
)
@pytest.mark.slow
def test_the_demo_ends_with_the_proof_and_leaves_nothing_behind(place: Path) -> None:
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    demo = warm.Popen(
        [sys.executable, "-W", "error", "-m", "apps.addresses", "demo", "--seconds", "5"],
        cwd=ROOT,
        env={**inherited, "TMPDIR": str(place), "ANVIL": str(program())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = demo.communicate(timeout=100)
    except BaseException:
        demo.send_signal(signal.SIGTERM)  # it ends what it has started
        demo.communicate(timeout=15)
        raise
    assert demo.returncode == 0, said
    assert "is killed" in said
    assert "the last 4 blocks are replaced" in said
    assert "The books balance, by an independent check of tables and node: 14 addresses" in said.splitlines()[-1], said
    assert list(place.iterdir()) == []
