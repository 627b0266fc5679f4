"""Middleware: hooks around every enqueue and every call of a handler, and the `meta` that they send along with jobs.

A middleware is an object with one of these methods, or both:

    def around_enqueue(self, call: EnqueueCall) -> AbstractContextManager[None]
    def around_handler(self, call: HandlerCall) -> AbstractAsyncContextManager[None]

The first is a plain context manager, because `enqueue_sync` has no event loop. The second runs on the event loop; a handler in a
thread sees the context variables that it sets. The middleware that was registered first is the outermost. A hook cannot change how
a call ends: an error that it swallows is still raised, and an error of its own becomes the error of the call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from trueup.building import BUILDING
from trueup.errors import InvalidArguments
from trueup.jobs.job import Draft, HandlerCall
from trueup.options import wrong

MAX_META = 16 * 1024  # bytes of JSON: metadata of the delivery; data for the handler belongs into arguments


@dataclass(slots=True)
class EnqueueCall:
    """One call that stores jobs, or that makes one as a value (`job.call(…)`). What a hook adds to `meta` travels with them.

    `job_id` is known after `enqueue`, and `created` (how many jobs are new) after `enqueue` and `enqueue_many`.
    """

    kind: str
    queue: str
    operation: Literal["enqueue", "enqueue_many", "call"]
    meta: dict[str, Any]
    job_id: int | None = None
    created: int | None = None


class EnqueueMiddleware(Protocol):
    def around_enqueue(self, call: EnqueueCall, /) -> AbstractContextManager[Any]: ...


class HandlerMiddleware(Protocol):
    def around_handler(self, call: HandlerCall, /) -> AbstractAsyncContextManager[Any]: ...


Middleware = EnqueueMiddleware | HandlerMiddleware


class Middlewares:
    """The hooks of an App, the outermost first. Callers compare with an empty list, and pay nothing else."""

    def __init__(self, given: Iterable[Middleware] = ()) -> None:
        self.enqueue: list[Callable[[EnqueueCall], AbstractContextManager[Any]]] = []
        self.handler: list[Callable[[HandlerCall], AbstractAsyncContextManager[Any]]] = []
        if not isinstance(given, Iterable):
            raise wrong("middleware", given, "a list of objects with methods around_enqueue or around_handler")
        for each in given:
            self.add(each)

    def add(self, middleware: Middleware) -> None:
        enqueue, handler = getattr(middleware, "around_enqueue", None), getattr(middleware, "around_handler", None)
        if isinstance(middleware, type) or (enqueue is None and handler is None):
            raise wrong("middleware", middleware, "an object with a method around_enqueue or around_handler")
        if enqueue is not None:
            self.enqueue.append(enqueue)
        if handler is not None:
            self.handler.append(handler)

    @contextmanager
    def enqueueing(
        self, draft: Draft, operation: Literal["enqueue", "enqueue_many", "call"]
    ) -> Iterator[tuple[Draft, EnqueueCall]]:
        """Inside all hooks: the draft with the `meta` that they have added, and the call in which to record the result."""
        call = EnqueueCall(draft.kind, draft.queue, operation, decode_meta(draft.meta))
        with ExitStack() as stack:
            for hook in self.enqueue:
                stack.enter_context(_insisting(hook(call)))
            yield draft._replace(meta=encode_meta(f"job {draft.kind!r}", call.meta)), call


@contextmanager
def _insisting(hook: AbstractContextManager[Any]) -> Iterator[None]:
    """Raises the error of the call even if the hook swallows it."""
    failed: list[BaseException] = []
    try:
        with hook:
            try:
                yield
            except BaseException as error:
                failed.append(error)
                raise
        if failed:
            raise failed[0]
    finally:
        failed.clear()  # its frames hold this one, which would be a cycle


def encode_meta(owner: str, meta: Mapping[str, Any]) -> str | None:
    """As JSON; None for an empty one. Raises ConfigError or InvalidArguments that names `owner` and what cannot be stored."""
    with BUILDING:
        from pydantic_core import PydanticSerializationError, to_json

        from trueup.jobs.payload import checked, explain  # here, because programs that declare no job need no pydantic
    root = f"{owner}: meta"
    if not isinstance(meta, Mapping) or not all(isinstance(name, str) for name in meta):
        raise wrong(root, meta, "a mapping from names to values that JSON can hold")
    if not meta:
        return None
    try:
        encoded = to_json(meta, inf_nan_mode="constants", bytes_mode="base64")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise explain(meta, root, error) from None
    if len(encoded) > MAX_META:
        raise InvalidArguments(
            f"{root}: {len(encoded):,} bytes of JSON are over the limit of {MAX_META:,}; pass larger values as an argument"
        )
    return checked(encoded, meta, root, MAX_META)


def decode_meta(stored: str | None) -> dict[str, Any]:
    return {} if stored is None else json.loads(stored)
