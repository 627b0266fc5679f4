"""Finds names on the command line that are unknown, and so probably misspelt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueup.cli import output
from trueup.texts import known_names

if TYPE_CHECKING:
    from trueup.app import App


async def unknown(app: App, *, queue: str | None = None, kind: str | None = None) -> list[str]:
    """A line for each name that no live job, no running worker and no declaration of the App has."""
    lines = []
    depths = await app.jobs.queues() if queue is not None or kind is not None else ()
    if queue is not None:
        served = {each for worker in await app.workers.list() for each in worker.queues}
        lines += _line("queue", queue, {*served, *app.registry.queues(), *(depth.queue for depth in depths)})
    if kind is not None:
        lines += _line("kind", kind, {*(job.kind for job in app.registry), *(depth.kind for depth in depths)})
    return lines


def note_unknown(lines: list[str]) -> None:
    for line in lines:
        output.note(f"note: {line}")


def _line(what: str, name: str, names: set[str]) -> list[str]:
    if name in names:
        return []
    return [f"no worker, live job or declared job has the {what} {name!r}; {known_names(name, names)}"]
