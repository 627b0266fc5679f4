"""`trueup rules …`: what Prometheus and Grafana need to watch over this App."""

from __future__ import annotations

import typer

from trueup.cli import output
from trueup.cli.options import with_session
from trueup.cli.session import Session

group = typer.Typer(help="Print alert rules and a dashboard for what your App declares.", no_args_is_help=True)


@group.command("prometheus")
@with_session
def prometheus(session: Session) -> None:
    """Print alert rules for Prometheus, as YAML for rule_files. Needs no database."""
    from trueup.operate import rules

    document = rules.prometheus(session.app().registered())
    if session.json:
        output.write_json(document)
    else:
        for line in rules.yaml(document):
            output.say(line)


@group.command("grafana")
@with_session
def grafana(session: Session) -> None:
    """Print a dashboard for Grafana, as JSON to import. Needs no database."""
    from trueup.operate import rules

    app = session.app()
    output.write_json(rules.grafana(app.registered(), app.settings.service or "trueup"))
