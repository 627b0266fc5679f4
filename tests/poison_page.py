"""Writes the table of `docs/explanation/poison.md` from the parameters of the tests: `python -m tests.poison_page`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.work import test_poison as jobs
from tests.work import test_poison_ticks as ticks
from tests.work.rows import test_poison as rows
from tests.work.scans import test_scanner as scans

PAGE = Path(__file__).parents[1] / "docs/explanation/poison.md"
BEGIN, END = "<!-- made by: python -m tests.poison_page -->", "<!-- end of what was made -->"

DEAD_LETTER = "`status --check` (`dead_letters`), `dead list`, `jobs show`, log"
REFUSED = "`status --check` (`refused_jobs`), `jobs list`, `jobs show`, log (`job finish refused`)"
SCHEDULE = "`status`, `status --check` (`schedules`), `schedules list`, `schedules show`, log"
QUARANTINE = "`reconcilers quarantine`, `status --check` (`quarantine`), log"
SWEEP = "`status --check` (`sweeps`), log (`service failed`)"


@dataclass(frozen=True)
class Stage:
    name: str
    test: Callable[..., Any]
    becomes: str  # of the culprit
    seen: str
    poisons: Iterable[str] = ()

    @property
    def row(self) -> str:
        file = Path(self.test.__code__.co_filename).relative_to(PAGE.parents[2]).as_posix()
        poisons = "; ".join([*self.poisons, *parameters(self.test)])
        return f"| {self.name} | {poisons} | {self.becomes} | {self.seen} | `{file}::{self.test.__name__}` |"


STAGES = {
    "Jobs": (
        Stage("claim", jobs.test_claim, "stays queued, spends no attempt, is tried again", REFUSED),
        Stage("load", jobs.test_load, "dead at once, or done where a newer release would take it", DEAD_LETTER),
        Stage("call, outcome", jobs.test_write, "dead, cancelled, or done without its result", f"{DEAD_LETTER}, event"),
        Stage(
            "finish", jobs.test_write_refused_by_postgresql, "stays in hand; its handler does not run again", REFUSED
        ),
        Stage(
            "lock",
            jobs.test_a_row_that_somebody_has_locked,
            "runs, or ends, when the lock is gone",
            "`jobs list`",
            ["a lock"],
        ),
        Stage("rescue", jobs.test_rescue, "stays with its dead worker, is tried again", f"{REFUSED}, `stranded_jobs`"),
    ),
    "Schedules": (
        Stage(
            "tick", ticks.test_only_the_culprit_waits, "is tried again with backoff, fires once it is cured", SCHEDULE
        ),
        Stage("time", ticks.test_waiting_for_the_culprit_delays_the_others_by_seconds_at_most, "the same", SCHEDULE),
    ),
    "Rows": (
        Stage(
            "load",
            rows.test_load_of_a_value_that_python_cannot_read,
            "quarantined",
            QUARANTINE,
            ["an unreadable value"],
        ),
        Stage("claim", rows.test_claim, "quarantined", QUARANTINE),
        Stage("call", rows.test_call, "backs off, then quarantined", QUARANTINE),
        Stage("renew", rows.test_renew, "loses its own lease at most, is taken again and done", "log"),
        Stage("outcome", rows.test_value, "backs off, then quarantined", QUARANTINE),
        Stage("write", rows.test_write, "backs off, then quarantined", QUARANTINE),
        Stage("write", rows.test_write_refused_with_sqlstate, "backs off, then quarantined", QUARANTINE),
        Stage("rescue", rows.test_rescue, "quarantined", QUARANTINE),
    ),
    "Scans": (
        Stage("cursor", jobs.test_scan, "its pass fails, and is repeated at its interval", SWEEP),
        Stage(
            "item",
            scans.test_items_that_fail_are_said_and_counted_and_the_scan_goes_on,
            "is counted",
            "log",
            ["raises"],
        ),
        Stage(
            "begin, save, finish",
            jobs.test_scan_refused_by_postgresql,
            "is tried again, and its items are handled again",
            SWEEP,
        ),
    ),
}
NO_POISON = {"mode", "lane", "started"}  # parameters that say where it happens


def parameters(test: Callable[..., Any]) -> list[str]:
    found = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize" and mark.args[0] not in NO_POISON:
            found += [value if isinstance(value, str) else repr(value) for value in mark.args[1]]
    return found


def made() -> str:
    head = "| stage | poison | what becomes of it | where it is seen | test |\n| --- | --- | --- | --- | --- |"
    return "\n\n".join(
        "\n".join([f"## {title}\n", head, *(stage.row for stage in stages)]) for title, stages in STAGES.items()
    )


def page() -> str:
    """As it should be."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{made()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
