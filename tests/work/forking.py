"""A worker with a handler that forks. Run as `python -m tests.work.forking URL loop|thread returns|exits|raises`."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings

from trueup import App


def fork(how: str) -> None:
    if os.fork() == 0:
        if how == "exits":
            sys.exit(0)
        if how == "raises":
            raise ValueError("in the child")


async def main(url: str, where: str, how: str) -> None:
    app = App(url)

    async def on_the_loop() -> None:
        fork(how)

    def in_a_thread() -> None:
        fork(how)

    forks = app.job(name="forks")(on_the_loop if where == "loop" else in_a_thread)

    @app.job
    async def good() -> None: ...

    async with app, app.worker():
        await (await forks.enqueue()).result("10s")
        print("forked", flush=True)
        for _ in range(20):
            await (await good.enqueue()).result("10s")
        print("good", flush=True)
    print("stopped", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Python itself warns of forks beside threads
    asyncio.run(main(*sys.argv[1:]))
