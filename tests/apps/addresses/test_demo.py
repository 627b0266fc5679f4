"""The demo: it proves what it says, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from apps.addresses.demo import Proof
from apps.chain.anvil import program
from tests.support.processes import ROOT

BALANCED = Proof(
    addresses=3, on_chain=7, here=7, differing=0, added=9, soft_deleted=2, jobs=6, ticks=2, doubled=0, left=0
)


def test_books_that_balance_say_so() -> None:
    assert BALANCED.holds
    assert BALANCED.told.startswith("The books balance: 3 addresses, 7 transactions on the chain, 7 in the local copy")
    assert "9 added - 2 soft-deleted = 7" in BALANCED.told


@pytest.mark.parametrize(
    "wrong",
    [
        {"here": 8},
        {"on_chain": 8},
        {"differing": 1},
        {"added": 10},
        {"soft_deleted": 1},
        {"added": 7, "soft_deleted": 0},  # the reorganisation has taken nothing back: it proves nothing
        {"doubled": 1},
        {"left": 1},
    ],
)
def test_books_that_do_not_balance_say_so(wrong: dict[str, int]) -> None:
    proof = replace(BALANCED, **wrong)
    assert not proof.holds
    assert proof.told.startswith("The books do NOT balance")


@pytest.fixture
def place() -> Iterator[Path]:
    """Not below pytest's own directory: as root, PostgreSQL runs as nobody, who could not pass through."""
    with tempfile.TemporaryDirectory(prefix="addresses-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.mark.slow
def test_the_demo_ends_with_the_proof_and_leaves_nothing_behind(place: Path) -> None:
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    demo = subprocess.Popen(
        [sys.executable, "-m", "apps.addresses", "demo", "--seconds", "5"],
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
    assert said.splitlines()[-1].startswith("The books balance: 14 addresses"), said
    assert list(place.iterdir()) == []
