"""`trueup audit`: whether every tick that was due is in the ledger, once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueup.cli import output
from trueup.cli.ages import to_second
from trueup.cli.errors import WRONG
from trueup.cli.options import duration_option, with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.session import Session

if TYPE_CHECKING:
    from trueup.operate.audit import Audit
    from trueup.schedules.audit import Findings, TickSpan

MAX_LISTED = 20  # of each kind and schedule, for people


@with_session
def audit(
    session: Session,
    since: Annotated[str, duration_option("--since", help="How far back, such as 7d or 12h.")] = "7d",
) -> None:
    """Compare the expected ticks with the ledger.

    Lists gaps (passed over), overdue ticks (not decided yet), unexpected ones, runs without a tick of their own, and schedules that code declares and that do not fire. Exits with 1 if there is any.
    """
    found = session.run(lambda app: app.schedules.audit(since))
    if session.json:
        output.write_json(_document(found))
    else:
        _show(found)
    if not found.clean:
        raise typer.Exit(WRONG)


def _document(found: Audit) -> dict[str, Any]:
    return {
        "since": found.since,
        "until": found.until,
        "clean": found.clean,
        "schedules": [_record(findings) for findings in found.schedules],
    }


def _record(findings: Findings) -> dict[str, Any]:
    record = dataclasses.asdict(findings)
    return {name: value for name, value in record.items() if not name.startswith("_")}


def _show(found: Audit) -> None:
    counts = ("expected", "fired", "skipped")
    faults = ("gaps", "overdue", "unexpected", "astray")
    columns = headings("schedule*", *(f"{name}>" for name in (*counts, *faults)))
    table = TextTable("Schedules", columns, empty="no schedules in this period")
    for each in found.schedules:
        numbers = [getattr(each, name) for name in counts]
        numbers += [_ticks(each.gaps), _ticks(each.overdue), len(each.unexpected), len(each.astray)]
        table.rows.append((each.name, *(f"{number:,}" for number in numbers)))
    output.show(table)
    for findings in found.schedules:
        for line in _lines(findings):
            output.say(f"{findings.name}: {line}")
    verdict = "every tick is accounted for" if found.clean else "something is wrong"
    if not found.clean and all(findings.missing is None for findings in found.schedules):
        verdict = "not every tick is accounted for"
    output.note(f"{verdict}, from {to_second(found.since)} to {to_second(found.until)}")


def _lines(findings: Findings) -> Iterator[str]:
    yield from _few(f"gap: {_span(span)}" for span in findings.gaps)
    yield from _few(f"overdue: {_span(span)}; does a worker run?" for span in findings.overdue)
    yield from _few(f"unexpected: {to_second(due_at)}" for due_at in findings.unexpected)
    yield from _few(
        f"astray: job {each.job_id} for {to_second(each.due_at)}, "
        + (f"whose run is job {each.recorded}" if each.recorded is not None else "which is not in the ledger")
        for each in findings.astray
    )
    if findings.missing is not None:
        yield f"missing: {findings.missing}; does a worker run?"
    if findings.unreadable is not None:
        yield f"not judged: {findings.unreadable}"


def _few(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == MAX_LISTED:
            yield "and more (--json lists all)"
            return
        yield line


def _ticks(spans: Sequence[TickSpan]) -> int:
    return sum(span.count for span in spans)


def _span(span: TickSpan) -> str:
    if span.count == 1:
        return to_second(span.first)
    return f"{to_second(span.first)} to {to_second(span.last)}, {span.count:,} ticks"
