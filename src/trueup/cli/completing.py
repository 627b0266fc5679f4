"""Names for shell completion: those that the App declares.

The shell runs this at every Tab, so it only imports the App's module: no connection, no embedded PostgreSQL, no file written. An
import that fails gives no names, and what the module prints is discarded.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

import typer

from trueup.cli.session import Session

if TYPE_CHECKING:
    from trueup.app import App


def kinds(context: typer.Context, incomplete: str) -> list[str]:
    return _names(context, incomplete, lambda app: [job.kind for job in app.registry])


def queues(context: typer.Context, incomplete: str) -> list[str]:
    return _names(context, incomplete, lambda app: app.registry.queues())


def schedules(context: typer.Context, incomplete: str) -> list[str]:
    return _names(context, incomplete, lambda app: app._schedules)


def reconcilers(context: typer.Context, incomplete: str) -> list[str]:
    """Scans too: the commands take both."""
    return _names(context, incomplete, lambda app: [*app._reconcilers.names(), *app._scans])


def _names(context: typer.Context, incomplete: str, declared: Callable[[App], Iterable[str]]) -> list[str]:
    place = context.params.get("app") or context.find_root().params.get("app")
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return sorted(name for name in declared(Session(place).app()) if name.startswith(incomplete))
    except (Exception, SystemExit):
        return []
