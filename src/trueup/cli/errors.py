"""Errors as people see them: one line on standard error that says what is wrong and what to do, and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from trueup.dsn import mask
from trueup.errors import ConfigError, InvalidArguments, TrueupError, UnknownKind
from trueup.observe.printable import printable

WRONG = 1  # something was found to be wrong
USAGE = 2  # the command or the configuration is wrong
INTERRUPTED = 130  # as shells count it: 128 + SIGINT

# Newer releases of typer carry a copy of click and older ones need click itself; this is ClickException in both.
ParserError: Any = typer.BadParameter.__mro__[2]


class WrongUsage(TrueupError):
    """Options that do not go together."""


def report(error: Exception) -> int:
    """Print the error if it is one people should see as a line, and return the exit code. Raises it again if it is a bug."""
    if isinstance(error, ParserError):
        return _report_usage(error)
    if isinstance(error, TrueupError):
        say_error(str(error))
        return USAGE if isinstance(error, ConfigError | InvalidArguments | UnknownKind | WrongUsage) else WRONG
    return _report_database(error)


def say_error(text: str) -> None:
    """`error: …` on standard error, passwords masked, further lines indented, nothing that a terminal would act on."""
    first, *rest = (printable(line.strip()) for line in mask(text).strip().splitlines() or ["unknown"])
    label = typer.style("error:", fg="red", bold=True)
    typer.echo("\n".join([f"{label} {first}", *(f"       {line}" for line in rest)]), err=True)


def _report_usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # its text is the whole help
        error.show()
        return USAGE
    context = getattr(error, "ctx", None)
    hint = f"\ntry: {context.command_path} --help" if context is not None else ""
    say_error(f"{error.format_message()}{hint}")
    return int(error.exit_code)


def _report_database(error: Exception) -> int:
    import psycopg
    from psycopg import errors

    from trueup.store.db.reasons import reason

    match error:
        case errors.UndefinedTable() | errors.InvalidSchemaName() | errors.UndefinedColumn():
            say_error("this database has no trueup schema that fits this release; run: trueup migrate")
            return USAGE
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
