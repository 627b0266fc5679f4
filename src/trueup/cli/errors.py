"""Errors as people see them: one line on standard error that says what is wrong and what to do, and an exit code."""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import typer

from trueup.dsn import mask
from trueup.errors import ConfigError, InvalidArguments, TrueupError, UnknownKind
from trueup.observe.logs import LOGGER
from trueup.observe.printable import printable

WRONG = 1  # something was found to be wrong
USAGE = 2  # the command or the configuration is wrong
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # where a file is written, which may be standard output
NEGATIVE = re.compile(r"No such option: -\d")  # a value for the command, and an option for its parser
INTERRUPTED = 130  # as shells count it: 128 + SIGINT

# Newer releases of typer carry a copy of click and older ones need click itself; this is ClickException in both.
ParserError: Any = typer.BadParameter.__mro__[2]


class WrongUsage(TrueupError):
    """Options that do not go together."""


def report(error: Exception) -> int:
    """Print an expected error as one line, and return the exit code. Raises the error again if it is a bug."""
    if isinstance(error, ParserError):
        return _report_usage(error)
    if isinstance(error, TrueupError):
        say_error(str(error))
        return USAGE if isinstance(error, ConfigError | InvalidArguments | UnknownKind | WrongUsage) else WRONG
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        _silence_output()  # or what could not be written would be tried again at the end
        say_error(f"a file cannot be written: {error.strerror}; free some space, or write the output elsewhere")
        return WRONG
    return _report_database(error)


def say_error(text: str) -> None:
    """`error: …` on standard error, passwords masked, further lines indented, nothing that a terminal would act on.

    Where log lines are JSON, it is one of them.
    """
    if _writes_json():
        logging.getLogger(LOGGER).error(text)
        return
    first, *rest = (printable(line.strip()) for line in mask(text).strip().splitlines() or ["unknown"])
    label = typer.style("error:", fg="red", bold=True)
    typer.echo("\n".join([f"{label} {first}", *(f"       {line}" for line in rest)]), err=True)


def _writes_json() -> bool:
    """Whether this process writes log lines, as workers do, and they are JSON."""
    from trueup.observe.lines import JsonLines, LinesHandler

    handlers = logging.getLogger(LOGGER).handlers
    return any(isinstance(each, LinesHandler) and isinstance(each.formatter, JsonLines) for each in handlers)


def _report_usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # its text is the complete help
        error.show()
        return USAGE
    context = getattr(error, "ctx", None)
    text = error.format_message().replace("Value error, ", "")  # pydantic's, which checks arguments for typer
    if context is not None:
        unknown = re.match("No such command '([^']+)'", text)
        elsewhere = list(_named(unknown[1], context.find_root().command, ("trueup",))) if unknown else []
        if unknown and elsewhere:
            text = f"{unknown[0]}. It is: {', or '.join(elsewhere)}"
        if NEGATIVE.match(text):
            text += f"\na key below zero comes last, after two dashes: {context.command_path} … -- KEY"
        text += f"\ntry: {context.command_path} --help"
    say_error(text)
    return int(error.exit_code)


def _named(name: str, group: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The commands of this name, each with the groups that lead to it: `trueup jobs enqueue`."""
    for each, command in group.commands.items():
        if each == name:
            yield " ".join((*path, each))
        elif hasattr(command, "commands"):
            yield from _named(name, command, (*path, each))


def _report_database(error: Exception) -> int:
    import psycopg
    from psycopg import errors

    from trueup.store.db.reasons import reason

    match error:
        case errors.InsufficientPrivilege():
            say_error(reason(error))
            return USAGE
        case (
            psycopg.OperationalError()
            | errors.InFailedSqlTransaction()
            | errors.ReadOnlySqlTransaction()
            | errors.IdleInTransactionSessionTimeout()
            | errors.TransactionTimeout()
        ):
            say_error(reason(error))
            return WRONG
        case _:
            raise error


def flush_or_give_up() -> bool:
    """Flush standard output. False when its reader has closed the pipe; then nothing more is written to it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_output()
        return False
    return True


def _silence_output() -> None:
    """Send the rest nowhere, or Python would complain about the closed pipe once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
