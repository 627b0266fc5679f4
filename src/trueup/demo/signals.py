"""Ctrl-C and other ending signals as an exception that no handler of errors catches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndedBySignal(BaseException):
    """A signal asked us to end; `status` is the exit status for it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise EndedBySignal on the first signal; those after it are ignored, as we are ending already."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise EndedBySignal(number)

    with _handled_by(interrupt):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore the signals meanwhile: for cleaning up."""
    with _handled_by(signal.SIG_IGN):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread only
        yield
        return
    heeded = [
        number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN
    ]  # nohup ignores one, and a script's `&`
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
