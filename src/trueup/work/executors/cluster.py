"""Executors whose processes belong to a cluster elsewhere: their places come and go, and the cluster can be out of reach."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor


class ClusterAway(BrokenExecutor):
    """The cluster is out of reach. No call is to blame, and whether this one ran is unknown."""


class ChildDied(Exception):
    """The process that ran the handler died: killed, out of memory, or ended by the handler itself."""


class ClusterExecutor(Executor):
    """A worker that made one never replaces it: it connects by itself again, and nothing that runs there can be ended from here.

    Its futures raise ClusterAway when the cluster went away, and ChildDied when a call ended the processes that ran it.
    """

    @property
    @abstractmethod
    def places(self) -> int:
        """How many calls the cluster runs at once now: zero while it is unreachable. Returns at once."""

    @abstractmethod
    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed`, in whatever thread, each time `places` has changed."""
