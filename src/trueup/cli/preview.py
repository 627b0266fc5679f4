"""`trueup schedules preview`: a schedule in a year, and the effect of clock changes on it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from trueup.cli import completing, output, specs
from trueup.cli.ages import to_second
from trueup.cli.errors import WrongUsage
from trueup.cli.options import argument, option, with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.session import Session

if TYPE_CHECKING:
    from trueup.schedules.preview import Touched, Year


@with_session
def preview(
    session: Session,
    name: Annotated[str | None, argument("NAME", "The schedule's name.", autocompletion=completing.schedules)] = None,
    cron: specs.CronOption = None,
    tz: specs.TzOption = None,
    dst: specs.DstOption = None,
    every: specs.EveryOption = None,
    at: specs.AtOption = None,
    year: Annotated[int | None, option("--year", "YEAR", "The year (UTC). Default: this year.")] = None,
) -> None:
    """Show a schedule in a year: its first ticks, and how it treats each time that clocks skip or repeat.

    Takes the name of a schedule, or a rule that is not stored; a rule needs no database.
    """
    from trueup.schedules.preview import in_year

    spec = specs.chosen(cron, tz, dst, every, at)
    if (spec is None) == (name is None):
        raise WrongUsage("give a schedule's name, or one of --cron, --every and --at")
    wanted = year if year is not None else datetime.now(UTC).year
    if spec is not None:
        seen = in_year(spec, wanted)
    else:
        seen = session.run(lambda app: app.schedules.preview(str(name), wanted))
    if session.json:
        output.write_json(_document(seen))
    else:
        _show(seen)


def _document(seen: Year) -> dict[str, Any]:
    from trueup.schedules.spec import to_json

    return {
        "spec": to_json(seen.spec),
        "year": seen.year,
        "first": seen.first,
        "touched": [dataclasses.asdict(touched) for touched in seen.touched],
        "more": seen.more,
    }


def _show(seen: Year) -> None:
    from trueup.schedules.cron import Cron
    from trueup.schedules.zones import tz_version

    output.say(f"{seen.spec.describe()}")
    zone = seen.spec.zone if isinstance(seen.spec, Cron) else UTC
    first = [(to_second(tick), f"{tick.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}") for tick in seen.first]
    columns = headings("first ticks", "on its clocks")
    tables = [TextTable(f"First ticks of {seen.year}", columns, list(first), empty=f"no tick in {seen.year}")]
    if isinstance(seen.spec, Cron):
        tables.append(_touched(seen))
    output.show(*tables)
    if seen.more:
        output.note(f"there are more; the first {len(seen.touched):,} are shown")
    if isinstance(seen.spec, Cron):
        output.note(f"time zones as of tzdata {tz_version()}")


def _touched(seen: Year) -> TextTable:
    columns = headings("on its clocks", "clocks", "due at", "why*")
    rows: list[tuple[object, ...]] = [_row(touched) for touched in seen.touched]
    return TextTable(f"Moved clocks in {seen.year}", columns, list(rows), empty="moved clocks do not touch it")


def _row(touched: Touched) -> tuple[object, ...]:
    due = ", ".join(map(to_second, touched.ticks))
    return (f"{touched.reading:%Y-%m-%d %H:%M:%S}", touched.clocks, due or "not at all", touched.why)
