"""The lock under which a thread imports and builds objects that all threads share. A fork waits for it.

The child of a fork has only the thread that forked: a module that another thread was importing would stay locked in it forever.
"""

from __future__ import annotations

import logging  # noqa: F401 - its hook must be older: a fork calls the newest first, and logging's takes a lock that imports need
import os
import threading
from importlib import import_module
from types import ModuleType

MAX_WAIT = 10.0  # seconds: a server that does not answer must not keep the process from forking


class Building:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._forking = threading.local()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._after)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _before(self) -> None:
        self._forking.waited = self._lock.acquire(timeout=MAX_WAIT)

    def _after(self) -> None:
        if self._forking.waited:
            self._lock.release()


BUILDING = Building()


def imported(name: str) -> ModuleType:
    """A module of trueup by name: for parts that only some programs need and whose dependencies may not be installed."""
    with BUILDING:
        return import_module(name)
