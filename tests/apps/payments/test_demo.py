"""The demo: it proves that the books balance, and would say so if they did not."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.chain.anvil import program
from apps.payments.books import Paid, balance
from tests.support.processes import ROOT

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PAID: Paid = {(None, "a"): [(NOON, 400), (NOON + HOUR, 600)]}


def request(status: str, **more: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "status": status,
        "address": "a",
        "token": None,
        "expected_amount": 1000,
        "expires_at": NOON + HOUR,
        **more,
    }


@pytest.mark.parametrize(
    ("found", "settled", "paid", "hours", "holds"),
    [
        (request("confirmed"), 1000, PAID, 3, True),
        (request("pending"), 1000, PAID, 0, False),
        (request("confirmed"), 999, PAID, 3, False),
        (request("confirmed"), 0, {}, 0, False),
        (request("pending"), 0, {}, 0, True),
        (request("pending"), 0, {}, 3, False),
        (request("expired"), 0, {}, 3, True),
        (request("expired"), 0, {}, 0, False),
        (request("detected"), 1000, PAID, 0, False),
        (request("confirmed", expires_at=NOON), 1000, PAID, 3, False),
        (request("expired", expires_at=NOON), 1000, PAID, 3, True),
        (request("confirmed", expected_amount=None), 1000, PAID, 3, True),
        (request("reorged"), 0, {}, 3, True),
        (request("reorged"), 1000, PAID, 3, False),
    ],
)
def test_the_books(found: dict[str, Any], settled: int, paid: Paid, hours: int, holds: bool) -> None:
    assert balance([found], settled, paid, NOON + hours * HOUR).holds is holds


@pytest.mark.slow
def test_the_demo_ends_with_the_proof_and_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "TRUEUP_DATABASE_URL": database_url,
        "TMPDIR": str(tmp_path),
        "ANVIL": str(program()),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "apps.payments", "demo", "--seconds", "10", "--requests", "40"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "was killed" in ended.stdout
    assert "blocks were replaced" in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("the books balance: 40 requests stand as the chain has them")
    assert not list(tmp_path.iterdir())
