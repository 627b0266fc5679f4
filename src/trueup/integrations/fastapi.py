"""FastAPI and Starlette: a lifespan that opens the App, and jobs that are enqueued in the request's own database session.

The only import from FastAPI is `Depends`, in `in_session`: the lifespan works with Starlette alone, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Literal, ParamSpec, TypeVar

from trueup.app import App
from trueup.errors import ConfigError
from trueup.jobs.definition import Job, Request
from trueup.jobs.handle import Handle

P = ParamSpec("P")
R = TypeVar("R")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(
    app: App,
    *,
    worker: bool = False,
    queues: Mapping[str, int | None] | list[str] | None = None,
    concurrency: int | None = None,
    inside: Lifespan | None = None,
) -> Lifespan:
    """A lifespan for `FastAPI(lifespan=…)` and `Starlette(lifespan=…)`: the App is open while the server runs.

    With `worker=True` a worker runs in the same process and event loop; when the server stops, running jobs get `drain_for`.
    `inside` is a lifespan of your own: it begins when the App is open, before the worker starts, and ends when the worker has
    stopped, so handlers can use what it opens. The state that it yields is kept.
    """

    @asynccontextmanager
    async def run(server: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            state = None if inside is None else await stack.enter_async_context(inside(server))
            if worker:
                await stack.enter_async_context(app.worker(queues=queues, concurrency=concurrency))
            yield state

    return run


class InSession:
    """Enqueues in one database session: the job exists if and only if the session commits."""

    def __init__(self, session: Any) -> None:
        self.session = session

    async def enqueue(self, job: Job[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """With an AsyncSession."""
        return await job.using(tx=self.session).enqueue(*args, **kwargs)

    def enqueue_sync(self, job: Job[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """With a sync Session, in a path operation that is a plain function."""
        return job.using(tx=self.session).enqueue_sync(*args, **kwargs)

    def using(self, job: Job[P, R], /, **options: Any) -> Request[P, R]:
        """`job.using(…)` in this session: `await jobs.using(send, delay="5m").enqueue("ada")`."""
        return job.using(tx=self.session, **options)


def in_session(session: Callable[..., Any], *, scope: Literal["function", "request"] | None = None) -> Any:
    """A dependency for FastAPI's path operations, on the dependency that gives them their session.

    `jobs: Annotated[InSession, Depends(in_session(get_session))]`. FastAPI calls a dependency once per request and scope, so that
    this is the session that the path operation itself has if `scope` is the same: with `Depends(get_session, scope="function")`,
    which ends the session before the response is sent, it is `in_session(get_session, scope="function")`.
    """
    try:
        from fastapi import Depends
    except ImportError as error:  # pragma: no cover - the tests have it
        raise ConfigError(
            "in_session is for FastAPI: pip install fastapi. In Starlette use job.using(tx=session)"
        ) from error

    given = Depends(session) if scope is None else Depends(session, scope=scope)

    def jobs(session: Any = given) -> InSession:
        return InSession(session)

    return jobs
