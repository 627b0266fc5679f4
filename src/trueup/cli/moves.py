"""Commands that pause, resume, create or end one schedule or reconciler, and say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from trueup.cli import output
from trueup.cli.session import Session

if TYPE_CHECKING:
    from trueup.app import App


def move(
    session: Session, noun: str, name: str, what: str, why_not: str, act: Callable[[App], Awaitable[bool]]
) -> None:
    """Act and report the result. It is no failure when there was nothing to change: a script may repeat the command."""
    changed = session.run(act)
    if session.json:
        output.write_json({noun: name, what: True, "changed": changed})
    elif changed:
        output.say(f"{what} {noun} {name}")
    if not changed:
        output.note(f"unchanged: {why_not}")


def say(session: Session, noun: str, name: str, what: str) -> None:
    session.answer({noun: name, what: True}, f"{what} {noun} {name}")
