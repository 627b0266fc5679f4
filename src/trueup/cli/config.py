"""`trueup config`: every setting, its value, and where that came from."""

from __future__ import annotations

from trueup.cli import output
from trueup.cli.options import with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.session import Session


@with_session
def config(session: Session) -> None:
    """Show the settings in force and where each came from."""
    from trueup.config import describe

    described = describe(session.settings())
    if session.json:
        output.write_json([each._asdict() for each in described])
        return
    table = TextTable("Settings", headings("setting", "value*", "source*"))
    table.rows.extend((each.name, each.value or "–", each.source) for each in described)
    output.show(table)
