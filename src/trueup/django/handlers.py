"""Django's connections around handlers, as around its requests: old and broken ones are closed before and after each call.

A sync handler runs in a thread of the worker's, which keeps its connection between calls as long as CONN_MAX_AGE says. An async
handler has a thread of its own for `sync_to_async` and the async ORM, as a request has under ASGI; its connections are closed
with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

in_handler: ContextVar[bool] = ContextVar("trueup_django_handler", default=False)


class DjangoConnections:
    """`trueup.work.calling.Around`."""

    @contextmanager
    def in_thread(self) -> Iterator[None]:
        close_old_connections()
        try:
            yield
        finally:
            close_old_connections()

    @asynccontextmanager
    async def on_loop(self) -> AsyncIterator[None]:
        before = in_handler.set(True)
        thread = ThreadSensitiveContext()
        try:
            async with thread:
                try:
                    yield
                finally:
                    if thread in SyncToAsync.context_to_thread_executor:  # the thread was used
                        await sync_to_async(connections.close_all)()
        finally:
            in_handler.reset(before)


CONNECTIONS = DjangoConnections()
