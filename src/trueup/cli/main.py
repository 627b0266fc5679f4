"""The command line: every command, and what happens around one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableSequence, Sequence
from contextlib import suppress
from functools import cache
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from trueup import program
from trueup.cli import dead, jobs, postgres, queues, reconcilers, rules, schedules
from trueup.cli.actions import actions
from trueup.cli.alerts import alerts
from trueup.cli.audit import audit
from trueup.cli.config import config
from trueup.cli.dashboard import dashboard
from trueup.cli.demo import demo
from trueup.cli.doctor import doctor
from trueup.cli.errors import INTERRUPTED, WRONG, WrongUsage, flush_or_give_up, report
from trueup.cli.migrate import migrate
from trueup.cli.options import AppOption, DatabaseOption, SchemaOption, remember, switch
from trueup.cli.recovery import recovery
from trueup.cli.status import status
from trueup.cli.worker import worker
from trueup.masking import mask


def check_text(arguments: Sequence[str]) -> None:
    """Raises WrongUsage when an argument is not UTF-8: neither PostgreSQL nor JSON could hold it."""
    for position, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise WrongUsage(f"argument {position} is not valid UTF-8: {argument[:80]!a}") from None


def hide_secrets(argv: MutableSequence[str]) -> None:
    """Mask them in `sys.argv`, which tools that report crashes send along.

    The operating system keeps its own copy, which other users of the machine can read. That is why a password belongs into
    TRUEUP_DATABASE_URL.
    """
    argv[:] = [mask(argument) for argument in argv]


app = typer.Typer(
    help="Schedules, durable jobs, leases and reconcilers on the PostgreSQL you already have.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text: it needs no drawing characters and starts faster
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(worker)
app.command()(status)
app.add_typer(jobs.group, name="jobs")
app.add_typer(dead.group, name="dead")
app.add_typer(queues.group, name="queues")
app.add_typer(schedules.group, name="schedules")
app.add_typer(reconcilers.group, name="reconcilers")
app.command()(alerts)
app.command()(actions)
app.command()(audit)
app.command()(recovery)
app.command()(doctor)
app.add_typer(rules.group, name="rules")
app.command()(migrate)
app.add_typer(postgres.group, name="postgres")
app.command()(config)
app.command()(dashboard)
app.command()(demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        from trueup import __version__

        typer.echo(f"trueup {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    app: AppOption = None,
    database_url: DatabaseOption = None,
    schema: SchemaOption = None,
    version: Annotated[
        bool, switch("--version", "Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    remember(context, app, database_url, schema)


def write_any_character() -> None:
    """An encoding that lacks a character, as of a terminal in Latin-1, must not end a command: it is written as `\\u2713`."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # what was a file at the start, and is a pipe since, cannot be changed
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")


@cache
def command() -> Callable[..., Any]:
    """All commands with their options. Made once: that takes longer than most commands do."""
    made: Callable[..., Any] = typer.main.get_command(app)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 ok, 1 something is wrong, 2 usage or configuration, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Commands report errors themselves; `worker` has lines.
    logging.getLogger("trueup").addHandler(logging.NullHandler())
    write_any_character()
    try:
        check_text(given)
        if arguments is None:
            hide_secrets(sys.argv)
        code = command()(given, prog_name=program.name, standalone_mode=False)
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:
        return WRONG
    except Exception as error:
        return report(error)
    return (code if isinstance(code, int) else 0) if flush_or_give_up() else WRONG
