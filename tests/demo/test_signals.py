"""Signals that end the demo, and those that its process was told to ignore."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from trueup.demo.signals import ENDING, EndedBySignal, interruptible, undisturbed


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_the_demo_and_is_its_status(number: signal.Signals) -> None:
    with pytest.raises(EndedBySignal) as ended, interruptible():
        os.kill(os.getpid(), number)
    assert ended.value.status == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_that_is_ignored_stays_ignored(number: signal.Signals) -> None:
    """nohup ignores SIGHUP, and a script ignores SIGINT for what it runs in the background."""
    signal.signal(number, signal.SIG_IGN)
    with interruptible():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_IGN


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_does_not_disturb_cleaning_up(number: signal.Signals) -> None:
    with interruptible(), undisturbed():
        os.kill(os.getpid(), number)
