"""`trueup reconcilers …`: listing reconcilers and scans, running one by hand, pausing them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from trueup.cli import many, output, quarantine
from trueup.cli.ages import ago, since, span, to_second, written
from trueup.cli.listing import error_text, outcomes_text
from trueup.cli.moves import move
from trueup.cli.options import NoteOption, YesOption, option, with_session
from trueup.cli.output import TextTable, headings
from trueup.cli.quarantine import Name
from trueup.cli.session import Session
from trueup.cli.sweeping import run
from trueup.observe.printable import printable, printable_json
from trueup.program import typed
from trueup.texts import counted

group = typer.Typer(help="Inspect, run, pause or resume reconcilers and scans.", no_args_is_help=True)

COLUMNS = headings("reconciler", "what*", "every>", "state*", "last sweep", "held>", "resting>", "quar.>", "last 24 h*")
NOT_FACTS = ("what", "rows", "every", "mode")  # shown by themselves


@group.command("list")
@with_session
def list_all(session: Session) -> None:
    """List reconcilers and scans: whether they may sweep, their last sweep, and the outcomes of rows in the last 24 hours."""
    found = session.run(lambda app: app.reconcilers.list())
    if session.json:
        output.write_json(found)
        return
    empty = "no reconcilers; a worker registers them when it starts, or give --app"
    output.show(TextTable("Reconcilers", COLUMNS, [_row(each) for each in found], empty=empty))
    quarantined = sum(each["quarantined"] for each in found)
    if quarantined:
        rows = "row is" if quarantined == 1 else "rows are"
        output.note(f"{quarantined:,} {rows} in quarantine; see: {typed('trueup reconcilers quarantine list')}")


def _row(record: dict[str, Any]) -> tuple[object, ...]:
    swept = record["last_swept_at"]
    return (
        record["name"],
        _what(record),
        record["every"] or "",
        state_text(record),
        "never" if swept is None else ago(swept),
        *(f"{record[name]:,}" if record[name] else "" for name in ("held", "resting", "quarantined")),
        outcomes_text(record["outcomes"]),
    )


def _what(record: dict[str, Any]) -> str:
    if record["rows"] is None:
        return str(record["what"])
    return str(record["rows"]) if record["what"] == "reconcile" else f"{record['what']} {record['rows']}"


def state_text(record: dict[str, Any]) -> str:
    """Whether it may sweep, or why not, and warnings about it."""
    state = record["state"]
    if state == "resting":
        state = f"resting {span(-since(record['paused_until']))}"
    if state == "running":
        state = f"running on {record['scan']['held_by']}"
    if record["mode"] == "shadow":
        state = "shadow" if state == "active" else f"{state}, shadow"
    known = sum(record[name] for name in ("held", "resting", "quarantined", "discarded"))
    if record["declared_by_worker"] is False and known:
        said = f"declared by no living worker, {counted(known, 'row')} known ({typed('trueup reconcilers forget')})"
        state = said if state == "active" else f"{state}, {said}"
    elif record["declared_here"] is False:
        state = "not declared" if state == "active" else f"{state}, not declared"
    elif not record["known"]:
        state = "never started"
    if record["last_error"]:
        return f"failing: {record['last_error']}"
    if record.get("paused_keys"):
        state = f"{state}, circuit breaker open for {', '.join(record['paused_keys'])}"
    return f"{state}: {record['note']}" if record["note"] and record["state"] != "active" else state


@group.command("show")
@with_session
def show(
    session: Session,
    name: Name,
    sweeps: Annotated[int, option("--sweeps", "N", "Show the last N entries.", min=1, max=10_000)] = 10,
) -> None:
    """Show everything about a reconciler or scan.

    Its declaration, its latest sweeps, the holders of rows, the last errors, and in shadow mode what it would have done.
    """
    record = session.run(lambda app: app.reconcilers.show(name, sweeps))
    if session.json:
        output.write_json(record)
        return
    output.write_block([*_facts(record), *(_scan_facts(record["scan"]) if record.get("scan") else ())])
    if record["what"] == "scan":
        return
    output.say("")
    held, errors, proposals = record["held_by"], record["errors"], record["proposals"]
    tables = [_sweeps(record["sweeps"]), _held(held), _errors(errors), _proposals(proposals)]
    output.show(tables[0], *(table for table in tables[1:] if table.rows))


def _facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    declared = [f"{name}={value}" for name, value in record["declared"].items() if name not in NOT_FACTS and value]
    counts = [f"{record[name]:,} {name}" for name in ("held", "resting", "quarantined", "discarded") if record[name]]
    a_scan = record["what"] == "scan"
    facts = [
        ("scan" if a_scan else "reconciler", record["name"]),
        ("what", None if a_scan else record["what"]),
        ("rows", record["rows"]),
        ("every", record["every"]),
        ("declared", ", ".join(declared)),
        ("state", state_text(record)),
        ("last scan" if a_scan else "last sweep", _moment(record["last_swept_at"]) or "never"),
        ("last error", _last_error(record)),
        ("next sweep", _moment(record.get("next_sweep_at"))),
        ("next due" if a_scan else "next row", _moment(record["next_due_at"])),
        ("known rows", ", ".join(counts)),
        ("last 24 h", None if a_scan else outcomes_text(record["outcomes"]) or "nothing"),
        (
            "set aside",
            f"see: {typed('trueup reconcilers quarantine list')} {record['name']}" if record["quarantined"] else None,
        ),
    ]
    return [(label, printable(text)) for label, text in facts if text]


def _last_error(record: dict[str, Any]) -> str | None:
    if not record["last_error"] or record["what"] == "scan":  # that of a scan is among the facts of its progress
        return None
    return f"{record['last_error']} (at {_moment(record['last_failed_at'])}, {record['failures']:,} in a row)"


def _scan_facts(scan: dict[str, Any]) -> list[tuple[str, str]]:
    underway = scan["underway"]
    cursor = printable_json(json.dumps(scan["cursor"], ensure_ascii=False)) if scan["cursor"] is not None else None
    facts = [
        ("under way", f"since {_moment(scan['started_at'])}" if underway else None),
        ("kept", _moment(scan["saved_at"]) if underway else None),
        ("cursor", cursor),
        ("items", f"{scan['items']:,}" + (f", {scan['failed']:,} failed" if scan["failed"] else "")),
        ("held by", scan["held_by"]),
        ("tries", f"{scan['failures']:,} in a row without getting further" if scan["failures"] > 1 else None),
        ("error", scan["error"]),
    ]
    return [(label, printable(text)) for label, text in facts if text]


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else written(moment)


def _sweeps(sweeps: list[dict[str, Any]]) -> TextTable:
    from trueup.reconcile.counts import OUTCOMES

    columns = headings("started at", "took>", "by*", "rows>", "outcomes*", "late>", "worst>")
    table = TextTable("Sweeps", columns, empty="no sweep with rows is on record")
    for sweep in sweeps:
        counts = {name: sweep[name] for name in OUTCOMES}
        table.rows.append(
            (
                to_second(sweep["started_at"]),
                span((sweep["ended_at"] - sweep["started_at"]).total_seconds()),
                _by(sweep),
                f"{sweep['claimed']:,}",
                outcomes_text(counts),
                f"{sweep['late']:,}" if sweep["late"] else "",
                span(sweep["worst_lateness_s"]) if sweep["late"] else "",
            )
        )
    return table


def _by(record: dict[str, Any]) -> str:
    """The worker; for manual runs, and for workers that are gone, only the beginning of the holder's id."""
    return f"{record['host']}:{record['pid']}" if record["host"] is not None else f"{str(record['holder'])[:8]}…"


def _held(holders: list[dict[str, Any]]) -> TextTable:
    columns = headings("held by*", "rows>", "for", "lease", "keys*")
    table = TextTable("Held now", columns)
    for holder in holders:
        left = -since(holder["lease_until"])
        lease = f"{span(left)} left" if left > 0 else "passed; taken over soon"
        keys = ", ".join(holder["keys"]) + (" …" if holder["rows"] > len(holder["keys"]) else "")
        table.rows.append((_by(holder), f"{holder['rows']:,}", span(since(holder["claimed_at"])), lease, keys))
    return table


def _errors(errors: list[dict[str, Any]]) -> TextTable:
    columns = headings("key*", "attempt>", "failed", "again", "error*")
    table = TextTable("Last errors", columns)
    for each in errors:
        again = each["state"] if each["again_at"] is None else ago(each["again_at"])
        table.rows.append((each["key"], each["attempt"], ago(each["changed_at"]), again, error_text(each["error"])))
    return table


def _proposals(proposals: list[dict[str, Any]]) -> TextTable:
    table = TextTable("Proposed in shadow mode", headings("outcome", "rows>", "key*", "for example*"))
    for each in proposals:
        for n, example in enumerate(each["examples"]):
            first = (each["kind"], f"{each['rows']:,}") if n == 0 else ("", "")
            table.rows.append((*first, example["key"], example["proposed"]))
    return table


group.command("run")(run)
group.add_typer(quarantine.group, name="quarantine")
group.command("release", hidden=True)(quarantine.release)
group.command("discard", hidden=True)(quarantine.discard)


@group.command("pause")
@with_session
def pause(session: Session, name: Name, reason: NoteOption = "paused by a person") -> None:
    """Stop all sweeps of a reconciler until it is resumed.

    Running handlers finish.
    """
    move(session, "reconciler", name, "paused", "it is paused already", lambda app: app.reconcilers.pause(name, reason))


@group.command("resume")
@with_session
def resume(session: Session, name: Name) -> None:
    """Sweep again: end a pause, or close an open circuit breaker."""
    move(
        session,
        "reconciler",
        name,
        "resumed",
        "it is not paused, and its circuit breaker is closed",
        lambda app: app.reconcilers.resume(name),
    )


@group.command("forget")
@with_session
def forget(session: Session, name: Name, yes: YesOption = False) -> None:
    """Delete the records of a reconciler that was removed from the code, or renamed.

    Deletes its backoffs, attempts and quarantine. Rows of your table are not touched. Refused while a living worker declares it.
    """
    known = session.run(lambda app: app.reconcilers.count_known(name))
    many.confirm(f"Forget reconciler {name} and its records about {known:,} rows?", yes)
    with many.progress(f"forgetting {name}", known) as note:
        count = session.run(lambda app: app.reconcilers.forget(name, note))
    document = {"reconciler": name, "forgotten": count}
    session.answer(document, f"forgot reconciler {name}, and its records about {count:,} rows")
