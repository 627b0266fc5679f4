"""`trueup demo`: three workers, one killed, and the proof that nothing was lost or done twice."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    workers: Annotated[int, typer.Option("--workers", min=2, max=6, help="Worker processes.")] = 3,
    jobs: Annotated[int, typer.Option("--jobs", min=500, max=1_000_000, help="Jobs to enqueue.")] = 3000,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data to look at afterwards.")] = False,
    plain: Annotated[
        bool | None, typer.Option("--plain/--live", help="Lines of text instead of a live picture.", show_default=False)
    ] = None,
) -> None:
    """Several workers, one killed, and the proof that no job was lost."""
    from trueup.demo.story import run

    raise typer.Exit(run(workers=workers, jobs=jobs, keep=keep, plain=plain))
