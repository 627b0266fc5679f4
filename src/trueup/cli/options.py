"""The options every command takes, before the command or after it: `trueup --app x:app worker`, `trueup worker --app x:app`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from trueup.cli import completing
from trueup.cli.session import Session
from trueup.dsn import mask
from trueup.errors import ConfigError

P = ParamSpec("P")

_PANEL = "Where"
WARNING = (
    "warning: --database-url has a password in it, which every user of this machine can read in the process list;"
    " set TRUEUP_DATABASE_URL instead"
)


def option(names: str, metavar: str, help: str, **more: Any) -> Any:
    """An option with a value: `option("--queue -q", "NAME", "Only jobs of this queue.")`."""
    return typer.Option(*names.split(), metavar=metavar, help=help, **more)


def switch(names: str, help: str, **more: Any) -> Any:
    """An option without a value."""
    return typer.Option(*names.split(), help=help, **more)


def argument(metavar: str, help: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, show_default=False, help=help, **more)


AppOption = Annotated[str | None, option("--app", "MODULE:ATTR", "Your App, or TRUEUP_APP.", rich_help_panel=_PANEL)]
DatabaseOption = Annotated[
    str | None,
    option(
        "--database-url",
        "URL",
        "The database, or TRUEUP_DATABASE_URL. Other users can see a password given here: use the variable.",
        rich_help_panel=_PANEL,
    ),
]
SchemaOption = Annotated[
    str | None, option("--schema", "NAME", "The schema of trueup's tables.", rich_help_panel=_PANEL)
]
JsonOption = Annotated[bool, switch("--json", "Print JSON.")]
KindOption = Annotated[str | None, option("--kind", "KIND", "Only jobs of this kind.", autocompletion=completing.kinds)]
NoteOption = Annotated[str, option("--reason", "TEXT", "A reason, stored as a note.")]
YesOption = Annotated[bool, switch("--yes -y", "Do not ask for confirmation.")]


def duration_option(name: str, *, help: str) -> Any:
    """An option that takes a duration. The parser refuses an invalid one, so the error names the option."""
    return typer.Option(name, metavar="DURATION", help=help, callback=_check_duration)


def _check_duration(given: str | None) -> str | None:
    from trueup.durations import parse_duration

    if given is not None:
        try:
            parse_duration(given)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from None
    return given


_MAX_ID = 2**63 - 1
JobId = Annotated[int, argument("ID", "The job's id.", min=1, max=_MAX_ID)]
JobIds = Annotated[list[int] | None, argument("ID…", "Ids of jobs.", min=1, max=_MAX_ID)]


def remember(
    context: typer.Context, app: AppOption = None, database_url: DatabaseOption = None, schema: SchemaOption = None
) -> None:
    """Keep the options that were given before the command."""
    context.obj = Session(app, database_url, schema)


def with_session(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Turn `command(session, …)` into one that takes the common options on the command line in place of the session."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        before: Session = given.pop("context").obj or Session()
        session = Session(
            _last(given.pop("app"), before.app_place),
            _last(given.pop("database_url"), before.database_url),
            _last(given.pop("schema"), before.schema),
            given.pop("json"),
        )
        if session.database_url is not None and mask(session.database_url) != session.database_url:
            typer.echo(WARNING, err=True)
        command(session, **given)  # type: ignore[call-arg]

    common = inspect.signature(_common, eval_str=True).parameters.values()
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *common)]
    # typer reads both.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _last(after: str | None, before: str | None) -> str | None:
    """What was given after the command, or else before it. An empty text counts: an unset variable of a shell must not lead
    to another database."""
    return before if after is None else after


def _common(
    context: typer.Context,
    json: JsonOption = False,
    app: AppOption = None,
    database_url: DatabaseOption = None,
    schema: SchemaOption = None,
) -> None:
    """Its signature is what `with_session` adds."""
