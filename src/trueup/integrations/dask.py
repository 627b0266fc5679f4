"""Handlers on a Dask cluster (extra `dask`): `@app.job(executor=Dask("tcp://scheduler:8786"))`.

A worker connects when it starts, in a thread of its own, and goes on trying. The scheduler is the authority on places and is
asked every `REFRESH` seconds: without an answer there are none, and no job is claimed for the cluster. A lost scheduler takes its
calls with it: they raise ClusterAway, and their jobs are postponed without spending an attempt. A killed Dask worker does not:
Dask runs its calls again on another one, `distributed.scheduler.allowed-failures` times, and then they raise ChildDied.

Equal calls are two calls (`pure=False`): Dask alone would run them once and share the result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Future
from concurrent.futures import wait as wait_for
from importlib.util import find_spec
from threading import Lock, Thread
from typing import Any
from uuid import uuid4

from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError
from trueup.texts import describe
from trueup.work.executors.cluster import ChildDied, ClusterAway, ClusterExecutor
from trueup.work.executors.remote import call_by_name

REFRESH = 1.0  # seconds between questions to the scheduler, and between tries to connect
log = logging.getLogger("trueup.dask")


class Dask:
    """A Dask cluster as `executor=`. Making one imports and connects nothing: processes that only enqueue do not need `distributed`.

    `places` is how many calls run at once. By default it is the number of threads of all Dask workers; an adaptive cluster, which has
    none while it is idle, needs a number. `resources` are what a call needs, as in `Client.submit`. Other options go to
    `distributed.Client`: `security`, `scheduler_file`, `name`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        places: int | None = None,
        resources: Mapping[str, float] | None = None,
        connect_timeout: Duration = "10s",
        **options: Any,
    ) -> None:
        if places is not None and (isinstance(places, bool) or not isinstance(places, int) or places < 1):
            raise ConfigError(f"Dask: places= takes a number of calls from 1, not {places!r:.60}")
        if (address is None) == ("scheduler_file" not in options):
            raise ConfigError(
                'Dask takes the address of a scheduler, as in Dask("tcp://host:8786"), or scheduler_file='
            )
        self.address = address
        self.places = places
        self.resources = dict(resources) if resources is not None else None
        self.connect_timeout = duration_of("connect_timeout", connect_timeout)
        self.options = options

    def __call__(self) -> DaskExecutor:
        return DaskExecutor(self)

    def __repr__(self) -> str:
        return f"Dask({self.address or self.options['scheduler_file']!r})"

    async def connect(self) -> Any:
        """Raises OSError when the scheduler is unreachable."""
        from distributed import Client

        return await Client(  # type: ignore[no-untyped-call]
            self.address,
            asynchronous=True,
            set_as_default=False,
            timeout=self.connect_timeout.total_seconds(),
            **self.options,
        )


class DaskExecutor(ClusterExecutor):
    """One connection to a cluster, made and kept by a thread. `submit` and `places` never wait for the network."""

    def __init__(self, dask: Dask) -> None:
        if find_spec("distributed") is None:  # importing it takes a second or more, so the thread does that
            raise ConfigError('handlers on a Dask cluster need distributed: pip install "trueup[dask]"')
        self._dask = dask
        self._client: Any = None  # a distributed.Client, which says little about its types
        self._places = 0
        self._watchers: list[Callable[[], None]] = []
        self._inside: set[Future[Any]] = set()
        self._closed = False
        self._lock = Lock()  # of the two above
        self._loop = asyncio.new_event_loop()
        self._main = self._loop.create_task(self._keep_connected())
        self._thread = Thread(target=self._live, name=f"trueup {dask!r}", daemon=True)
        self._thread.start()

    @property
    def places(self) -> int:
        return self._places

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # it cannot be cancelled any more, as in a process pool
        with self._lock:
            if self._closed:
                raise BrokenExecutor("this executor has been shut down")
            self._inside.add(future)
        asyncio.run_coroutine_threadsafe(self._call(future, fn, args, kwargs), self._loop)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect. The scheduler then drops calls that have not begun; those that have run on, and their results are lost."""
        if wait and not cancel_futures:
            wait_for(list(self._inside))
        with self._lock:
            if self._closed:
                return
            self._closed = True
            inside = list(self._inside)
        for future in inside:
            self._end(future, BrokenExecutor("this executor has been shut down"))
        self._loop.call_soon_threadsafe(self._main.cancel)
        if wait:
            self._thread.join()

    # -- in the thread --------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        try:
            await self._main
        except asyncio.CancelledError:
            return
        finally:
            if self._client is not None:
                await self._client.close(timeout=1)

    async def _keep_connected(self) -> None:
        away = False
        while True:
            try:
                self._set_places(await self._ask())
                away = False
            # Unreachable, or of another version: log the error, and try again.
            except Exception as error:
                self._set_places(0)
                if not away:
                    log.warning(
                        "Dask scheduler unreachable", extra={"scheduler": repr(self._dask), "error": describe(error)}
                    )
                away = True
            await asyncio.sleep(REFRESH)

    async def _ask(self) -> int:
        """The number of places. Connects first; a client that has lost its scheduler reconnects by itself for a while."""
        if self._client is None or self._client.status == "closed":
            self._client = await self._dask.connect()
        seconds = self._dask.connect_timeout.total_seconds()
        threads = await asyncio.wait_for(self._client.scheduler.ncores(), seconds)
        if self._client.status != "running":
            return 0
        return self._dask.places or sum(threads.values())

    def _set_places(self, places: int) -> None:
        if places != self._places:
            self._places = places
            for changed in list(self._watchers):
                changed()

    async def _call(self, future: Future[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        from distributed import KilledWorker

        client = self._client
        try:
            if client is None or client.status != "running":
                raise ClusterAway(f"{self._dask!r} is unreachable")
            key = f"{args[1] if fn is call_by_name else getattr(fn, '__name__', 'call')}-{uuid4().hex}"
            submitted = client.submit(fn, *args, key=key, pure=False, resources=self._dask.resources, **kwargs)
            result = await submitted
        except KilledWorker as error:
            self._end(future, ChildDied(f"every Dask worker that ran it died: {describe(error)}"))
        except (CancelledError, ClusterAway) as error:
            self._set_places(0)  # until the scheduler has answered again
            self._end(future, ClusterAway(describe(error)))
        except BaseException as error:
            self._end(future, error)
        else:
            self._end(future, None, result)

    def _end(self, future: Future[Any], error: BaseException | None, result: Any = None) -> None:
        with self._lock:
            if future not in self._inside:
                return
            self._inside.discard(future)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
