"""`trueup postgres …`: the embedded PostgreSQL of this project."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import typer

from trueup.cli import output
from trueup.cli.errors import WRONG
from trueup.cli.options import JsonOption
from trueup.errors import DatabaseUnavailable
from trueup.program import typed

if TYPE_CHECKING:
    from trueup.embedded.embedded import EmbeddedPostgres, EmbeddedStatus

group = typer.Typer(help="Start, stop and inspect the embedded PostgreSQL.", no_args_is_help=True)


@group.command("start")
def start(json: JsonOption = False) -> None:
    """Start the embedded PostgreSQL and keep it running until `trueup postgres stop`."""
    server = _server()
    url = server.keep()
    status = server.status()
    if json:
        output.write_json(_document(status))
        return
    output.say(f"PostgreSQL {status.version} runs in {status.directory}")
    output.say(f"url   {url}")
    output.say(f"stop  {typed('trueup postgres stop')}")


@group.command("stop")
def stop(json: JsonOption = False) -> None:
    """Stop the embedded PostgreSQL, even while other processes use it."""
    server = _server()
    was_running = server.status().running
    try:
        server.stop()
    except TimeoutError as error:
        raise DatabaseUnavailable(f"it does not stop: {error}") from None
    if json:
        output.write_json({"stopped": was_running})
    else:
        output.say("stopped" if was_running else "it was not running")


@group.command("psql", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(context: typer.Context) -> None:
    """Open psql on the embedded PostgreSQL; further arguments go to psql: `trueup postgres psql -c 'select 1'`."""
    from trueup.embedded import binaries

    # Not exec: this process has to hold the server while psql runs, or the server would stop after its last user.
    with _server() as url:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is psql's
        try:
            program = binaries.locate() / "psql"
            code = subprocess.run([program, *context.args], env=_environment(url)).returncode
        finally:
            signal.signal(signal.SIGINT, before)
    raise typer.Exit(code)


@group.command("url")
def url(json: JsonOption = False) -> None:
    """Print the URL of the embedded PostgreSQL, and nothing else."""
    found = _server().status().url
    if found is None:
        raise DatabaseUnavailable(f"the embedded PostgreSQL is not running; start it: {typed('trueup postgres start')}")
    if json:
        output.write_json({"url": found})
    else:
        typer.echo(found)


@group.command("status")
def status(json: JsonOption = False) -> None:
    """Say whether the embedded PostgreSQL is running; exit with 1 if it is not."""
    found = _server().status()
    if json:
        output.write_json(_document(found))
    elif found.running:
        kept = f"until `{typed('trueup postgres stop')}`" if found.kept else "until its last user leaves"
        output.say(f"PostgreSQL {found.version} runs in {found.directory}, pid {found.pid}, {kept}")
        if found.users:
            output.say(f"used by processes {', '.join(map(str, sorted(found.users)))}")
    else:
        output.say(f"not running ({found.directory})")
    if not found.running:
        raise typer.Exit(WRONG)


def _server() -> EmbeddedPostgres:
    from trueup.config import load_settings
    from trueup.embedded.embedded import EmbeddedPostgres

    return EmbeddedPostgres(load_settings().data_dir)


def _document(status: EmbeddedStatus) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(status)


def _environment(url: str) -> dict[str, str]:
    """Ours, but libpq's variables lead to this server, so that psql's own options (`-d other`, a user) change only themselves."""
    from psycopg.pq import Conninfo

    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    options = Conninfo.parse(url.encode())
    return inherited | {each.envvar.decode(): each.val.decode() for each in options if each.envvar and each.val}
