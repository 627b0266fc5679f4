"""After a fork: what the child must not use, because connections, threads and locks in it are the parent's.

A web server that loads the application before it forks (`gunicorn --preload`) may have enqueued by then. The child would share
sockets with its parent, wait for the threads of a pool that it does not have, or for a lock that a thread of its parent held.
"""

from __future__ import annotations

import os
from typing import Any, Protocol
from weakref import WeakSet


class Inherited(Protocol):
    def begin_anew(self) -> object:
        """In the child: drop everything that belongs to the parent. Returns it, so that it is never finalised here."""
        ...


_known: WeakSet[Any] = WeakSet()
_of_the_parent: list[object] = []  # finalising a pool or a connection would end what the parent uses


def begins_anew_when_forked(thing: Inherited) -> None:
    _known.add(thing)


def _in_the_child() -> None:
    _of_the_parent.extend(thing.begin_anew() for thing in list(_known))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
