"""Commands that pause, resume, create or end one schedule or reconciler, and say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from trueup.cli import output
from trueup.cli.errors import WRONG
from trueup.cli.session import Session

if TYPE_CHECKING:
    from trueup.app import App


def move(
    session: Session, noun: str, name: str, what: str, why_not: str, act: Callable[[App], Awaitable[bool]]
) -> None:
    """Act and report the result; exit with 1 when nothing was changed."""
    done = session.run(act)
    say(session, noun, name, what, done=done)
    if not done:
        output.note(f"unchanged: {why_not}")
        raise typer.Exit(WRONG)


def say(session: Session, noun: str, name: str, what: str, *, done: bool = True) -> None:
    if session.json:
        output.write_json({noun: name, what: done})
    elif done:
        output.say(f"{what} {noun} {name}")
