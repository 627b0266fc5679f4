"""Writes the table of `docs/explanation/poison.md` from the parameters of the tests: `python -m tests.poison_page`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.store import test_coalescing as enqueueing
from tests.store.rows import test_tables as tables
from tests.work import test_poison as jobs
from tests.work import test_poison_ticks as ticks
from tests.work.rows import test_altered as altered
from tests.work.rows import test_ended_connections as ended
from tests.work.rows import test_failed as failed
from tests.work.rows import test_finisher as finisher
from tests.work.rows import test_handling as handling
from tests.work.rows import test_locked_tables as locked
from tests.work.rows import test_poison as rows
from tests.work.rows import test_purger as purger
from tests.work.rows import test_raising_where as where
from tests.work.rows import test_refused_purges as purges
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
        Stage(
            "enqueue, beside others",
            enqueueing.test_whatever_one_job_is_refused_with_the_others_are_stored,
            "is not stored",
            "the caller's error",
        ),
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
        Stage(
            "claim",
            rows.test_a_trigger_that_puts_another_state_than_that_of_a_claim,
            "backs off, then quarantined",
            QUARANTINE,
        ),
        Stage(
            "claim",
            rows.test_a_trigger_that_makes_a_claim_take_too_long,
            "comes last; quarantined, or released",
            QUARANTINE,
            rows.SLOW_CLAIM,
        ),
        Stage("call", rows.test_call, "backs off, then quarantined", QUARANTINE),
        Stage("renew", rows.test_renew, "loses its own lease at most, is taken again and done", "log"),
        Stage("outcome", rows.test_value, "backs off, then quarantined", QUARANTINE),
        Stage("write", rows.test_write, "backs off, then quarantined", QUARANTINE),
        Stage(
            "write",
            rows.test_a_trigger_that_keeps_the_row,
            "backs off, then quarantined",
            QUARANTINE,
        ),
        Stage(
            "claim, write",
            altered.test_outcomes_of_rows_that_were_claimed_before_a_change,
            "done, or tried again without a spent attempt",
            "nowhere",
            altered.CHANGES,
        ),
        Stage("write", rows.test_write_refused_with_sqlstate, "backs off, then quarantined", QUARANTINE),
        Stage(
            "write, claim",
            ended.test_a_row_whose_write_ends_its_connection,
            "backs off, then quarantined",
            QUARANTINE,
            ["the write ends its connection"],
        ),
        Stage(
            "write",
            locked.test_an_index_is_built_meanwhile,
            "done when the lock is gone, handled once",
            "log",
            ["a lock on the table"],
        ),
        Stage("claim, write", rows.test_a_trigger_that_changes_its_session, "done, as all others", "nowhere"),
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
NO_POISON = {"mode", "lane", "started", ("mode", "poison")}  # parameters that say where it happens

# A row of each reconciler, stage by stage: the test that tries it there, or why there is nothing to try.
AT = ("claim", "load", "call", "decide", "write", "renew", "rescue", "purge", "forget")
WHY = {
    "a": "nothing of yours is written at this stage",
    "b": "only times, owners and states are written at this stage",
    "c": "takes the same way as a trigger that raises: a refusal is a refusal, whatever its reason",
    "d": "a worker refuses such a table when it starts",
    "e": "happens in the handler's own process, and nowhere else",
    "f": "is not evaluated at this stage",
    "g": "rows that are locked are passed over",
    "h": "takes the same way as at the claim or the write",
    "j": "the sweep ends with the error, no row is to blame, and the next sweep tries again",
    "k": "what `failed=` and `exhausted=` return is written like an outcome",
    "l": "cannot be told from a row that your program brings back: it is handled again with each sweep, after the others",
    "m": "its record stays until a person releases or discards it",
    "i": "the server ends the statement, and each lease is renewed alone",
}
Cell = Callable[..., Any] | str


GRID: dict[str, tuple[Cell, ...]] = {
    "a trigger that raises": (
        rows.test_claim,
        "a",
        "a",
        "k",
        rows.test_write,
        rows.test_renew,
        rows.test_rescue,
        purges.test_a_refused_row_alone_is_quarantined_after_its_attempts,
        rows.test_forget,
    ),
    "a trigger that keeps the row": (
        rows.test_claim,
        "a",
        "a",
        "k",
        rows.test_a_trigger_that_keeps_the_row,
        rows.test_renew,
        rows.test_rescue,
        purges.test_rows_that_a_trigger_keeps_neither_end_nor_starve_a_sweep,
        "a",
    ),
    "a trigger that puts another state, or the old row": (
        rows.test_a_trigger_that_puts_another_state_than_that_of_a_claim,
        "a",
        "a",
        "k",
        rows.test_a_trigger_that_keeps_the_row,
        "b",
        "h",
        purges.test_a_refused_row_alone_is_quarantined_after_its_attempts,
        "a",
    ),
    "a trigger that brings the row back afterwards": (
        "l",
        "a",
        "a",
        "k",
        "l",
        "b",
        "l",
        purges.test_rows_that_a_trigger_brings_back_do_not_hold_a_sweep_for_ever,
        "a",
    ),
    "a trigger that touches the row": (
        rows.test_a_trigger_that_touches_the_row_after_every_claim,
        "a",
        "a",
        "k",
        "h",
        "h",
        "h",
        "c",
        "a",
    ),
    "a trigger that changes its session": (
        rows.test_a_trigger_that_changes_its_session,
        "a",
        "a",
        "k",
        rows.test_a_trigger_that_changes_its_session,
        rows.test_renew,
        "h",
        purges.test_a_trigger_that_changes_its_session,
        "a",
    ),
    "every class of SQLSTATE": (
        rows.test_claim,
        where.test_a_row_that_raises,
        "e",
        "k",
        rows.test_write_refused_with_sqlstate,
        rows.test_renew,
        rows.test_rescue,
        purges.test_a_refusal_that_may_pass_spends_no_attempt,
        where.test_records_of_rows_that_left_are_forgotten_beside_one_that_raises,
    ),
    "a rule": (tables.test_a_table_with_rules_that_rewrite_our_statements_is_refused_by_their_names, *"ddddddd", "d"),
    "FOREIGN KEY … RESTRICT": (
        "b",
        "a",
        "a",
        handling.test_exhausted_that_the_database_refuses_quarantines,
        rows.test_delete_of_a_row_that_others_refer_to,
        "b",
        "b",
        purges.test_a_refused_row_alone_is_quarantined_after_its_attempts,
        "a",
    ),
    "a deferred constraint, NOT VALID, unique": (
        "c",
        "a",
        "a",
        "k",
        rows.test_write,
        "c",
        "c",
        purges.test_a_refused_row_alone_is_quarantined_after_its_attempts,
        "a",
    ),
    "a lock of yours": (
        "g",
        "a",
        "a",
        "k",
        rows.test_a_users_lock_delays_only_that_rows_outcome,
        finisher.test_a_row_that_somebody_has_locked_is_written_when_they_let_go,
        "g",
        "g",
        rows.test_forget,
    ),
    "a lock of yours on the table": (
        "j",
        "a",
        "a",
        "k",
        locked.test_an_index_is_built_meanwhile,
        locked.test_leases_are_kept_while_the_users_own_cannot_be_renewed,
        "j",
        "j",
        "a",
    ),
    "a write that ends its connection": (
        ended.test_a_row_whose_write_ends_its_connection,
        "a",
        "e",
        "k",
        ended.test_a_row_whose_write_ends_its_connection,
        rows.test_renew,
        "h",
        ended.test_a_row_whose_move_or_deletion_ends_its_connection,
        "a",
    ),
    "a key too long for an index": (
        *[rows.test_a_key_too_long_for_an_index] * 3,
        "k",
        rows.test_a_key_too_long_for_an_index,
        "h",
        "h",
        "h",
        "h",
    ),
    "a value that does not fit: NUL, surrogate, NaN, infinity, too large": (
        "b",
        rows.test_load_of_a_value_that_python_cannot_read,
        "e",
        failed.test_one_that_cannot_be_written_does_not_cost_the_retry,
        rows.test_value,
        "b",
        "b",
        "b",
        "a",
    ),
    "`where=` that raises": (
        where.test_a_row_that_raises,
        where.test_a_row_that_raises,
        "f",
        "f",
        where.test_a_row_that_raises_once_it_was_claimed,
        "f",
        where.test_rows_of_a_dead_process_of_which_one_raises_are_taken_over,
        where.test_a_purge_passes_over_a_row_that_raises,
        where.test_records_of_rows_that_left_are_forgotten_beside_one_that_raises,
    ),
    "an exception, a BaseException": (
        "e",
        "e",
        rows.test_call,
        handling.test_exhausted_that_raises_quarantines,
        "e",
        "e",
        "e",
        "e",
        "e",
    ),
    "a column, or its type, is renamed, dropped or retyped": (
        altered.test_the_sweep_after_a_change_takes_all_rows,
        altered.test_the_sweep_after_a_change_takes_all_rows,
        "e",
        "k",
        altered.test_outcomes_of_rows_that_were_claimed_before_a_change,
        "h",
        "h",
        altered.test_the_sweep_after_a_change_takes_all_rows,
        "h",
    ),
    "`where=` that takes too long": (
        where.test_a_row_that_takes_too_long,
        where.test_a_row_that_takes_too_long,
        "f",
        "f",
        "h",
        "f",
        "h",
        where.test_a_purge_passes_over_a_row_that_takes_too_long,
        "m",
    ),
    "a trigger that takes long, or waits for a lock": (
        rows.test_a_trigger_that_makes_a_claim_take_too_long,
        "a",
        "a",
        "k",
        finisher.test_rows_whose_trigger_takes_long_are_written_after_the_others,
        "i",
        "h",
        purger.test_a_statement_that_takes_too_long_is_reported_and_the_next_sweep_happens,
        "a",
    ),
    "a handler that hangs": (
        "e",
        "e",
        rows.test_a_handler_that_hangs_does_not_keep_new_rows_waiting,
        *"eeeeee",
    ),
}


def _test_id(test: Callable[..., Any]) -> str:
    file = Path(test.__code__.co_filename).relative_to(PAGE.parents[2]).as_posix()
    return f"`{file}::{test.__name__}`"


def grid() -> str:
    """Each poison at each stage: a number of a test, or a letter of a reason."""
    numbers: dict[str, int] = {}
    lines = [f"| poison | {' | '.join(AT)} |", "| --- |" + " --- |" * len(AT)]
    for poison, cells in GRID.items():
        shown = [
            cell if isinstance(cell, str) else str(numbers.setdefault(_test_id(cell), len(numbers) + 1))
            for cell in cells
        ]
        lines.append(f"| {poison} | {' | '.join(shown)} |")
    used = {cell for cells in GRID.values() for cell in cells if isinstance(cell, str)}
    reasons = [f"- **{letter}**: {why}" for letter, why in WHY.items() if letter in used]
    tests = [f"{number}. {test}" for test, number in numbers.items()]
    return "\n".join(["### Rows: poison by stage\n", *lines, "", *reasons, "", *tests])


def parameters(test: Callable[..., Any]) -> list[str]:
    found = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize" and mark.args[0] not in NO_POISON:
            found += [value if isinstance(value, str) else repr(value) for value in mark.args[1]]
    return found


def made() -> str:
    head = "| stage | poison | what becomes of it | where it is seen | test |\n| --- | --- | --- | --- | --- |"
    tables = {
        title: "\n".join([f"## {title}\n", head, *(stage.row for stage in stages)]) for title, stages in STAGES.items()
    }
    tables["Rows"] += "\n\n" + grid()
    return "\n\n".join(tables.values())


def page() -> str:
    """As it should be."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{made()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
