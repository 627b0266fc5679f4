"""The functions that a job, a tick, a row and a lease go through, as they are called: `python -m tools.walks [job|tick|row|lease]`.

Without a name, how many functions and modules each walk has; with one, the walk itself, a line for each function when it is first
entered. Each walk is made twice, and the second is counted: what happens once a process is no part of it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from psycopg import AsyncConnection

import trueup
from tests.support.database import TestServer
from trueup import App, To
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

ROOT = Path(trueup.__file__).parent
Entered = dict[tuple[str, str], None]  # module and function, in the order of their first calls
Walk = Callable[[], Awaitable[object]]


@contextmanager
def followed(entered: Entered) -> Iterator[None]:
    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)) and not code.co_name.startswith(("<", "__")):
            module = str(Path(code.co_filename).relative_to(ROOT))
            if not module.startswith("testing/"):
                entered.setdefault((module, code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def walked(url: str) -> dict[str, Entered]:
    """On an empty database that is migrated."""
    clock, found = ManualClock(), dict[str, Entered]()
    async with App(url, clock=clock) as app:
        walks, worker = await _walks(app, url, clock)
        try:
            for name, walk in walks.items():
                await walk()
                with followed(found.setdefault(name, {})):
                    await walk()
        finally:
            await worker.end()
    return found


async def _walks(app: App, url: str, clock: ManualClock) -> tuple[dict[str, Walk], ManualWorker]:
    @app.job
    async def send(to: int) -> None: ...

    @app.every("5s")
    async def often() -> None: ...

    async with app.transaction() as tx:
        await tx.execute("create table papers (id bigint primary key, state text not null)")

    @app.table("papers", key="id", state="state").reconcile("new")
    async def read(paper: Any) -> To:
        return To("read")

    worker = ManualWorker(app)
    await worker.begin()

    async def job() -> None:
        await send.enqueue(1)
        await worker.claim()
        await worker.run_one()
        await worker.finish()

    async def tick() -> None:
        clock.advance(seconds=5)
        await worker.plan()

    async def row() -> None:
        async with await AsyncConnection.connect(url) as theirs:
            await theirs.execute("insert into papers select count(*), 'new' from papers")
        await worker.sweep("read")

    async def lease() -> None:
        async with app.lease("nightly") as held, app.transaction() as tx:
            await held.fence(tx)

    return {"job": job, "tick": tick, "row": row, "lease": lease}, worker


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, TestServer(Path(directory)) as server, server.database() as url:
        found = asyncio.run(walked(url))
    for wanted in sys.argv[1:]:
        print("\n".join(f"{module:32} {function}" for module, function in found[wanted]))
    if not sys.argv[1:]:
        for name, entered in found.items():
            print(f"{name:6} {len(entered):4} functions in {len({module for module, _ in entered}):3} modules")
