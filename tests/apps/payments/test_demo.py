"""The demo: it proves that the books balance."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from apps.chain.anvil import program
from tests.support import warm
from tests.support.processes import ROOT


@pytest.mark.proof(
    beside="tests/apps/payments/test_processes.py::test_a_payment_is_seen_through_by_real_replicas_and_all_of_it_is_told"
)
@pytest.mark.slow
def test_the_demo_ends_with_the_proof_and_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "TRUEUP_DATABASE_URL": database_url,
        "TMPDIR": str(tmp_path),
        "ANVIL": str(program()),
    }
    demo = ("apps.payments", "demo", "--seconds", "10", "--requests", "16")
    ended = warm.run(*demo, cwd=ROOT, env=environment, timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "was killed" in ended.stdout
    assert "blocks were replaced" in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith(
        "the books balance, by an independent check of tables and node: 16 requests stand as the chain has them"
    )
    assert not list(tmp_path.iterdir())
