"""The proof: checks of the final state, each with the expected and the actual value, and their source.

Three sides are compared that know nothing of each other: what the demo planned yesterday (`demo.expected`), what the
application and trueup have in the database now, and what the receiver has written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, LiteralString

from psycopg import Connection

from trueup.demo.journal import Journal
from trueup.demo.view import hours

DOWNTIME = timedelta(hours=24)
MIN_WORST = timedelta(hours=20)  # at any time there is a zone in which it was nine o'clock less than four hours ago
IN_HAND = 100  # the batch size of the application's workers
STRETCH = 10.0  # seconds of the busiest interval
SLACK = 0.15  # of the rate: messages start at their moments, and arrive in bunches on a machine that is busy

Source = Literal["database", "receiver", "both", "logs"]


@dataclass(frozen=True, slots=True)
class Check:
    claim: str
    expected: str
    found: str
    source: Source
    holds: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """The data for the checks; `refused` is the number of late outcomes that were refused, according to the workers' logs."""

    connection: Connection[Any]
    journal: Journal
    workers: int
    rate: int
    refused: int


def examine(evidence: Evidence) -> list[Check]:
    database, journal = evidence.connection, evidence.journal
    return [
        ended_as_meant(database),
        nothing_left(database),
        received(database, journal),
        none_twice(journal),
        right_names(database, journal),
        withdrawn_not_sent(database, journal),
        refused_is_dead(database, journal),
        later_left_alone(database, journal),
        next_year_planned(database),
        taken_over(database),
        late_finishes_refused(database, evidence.refused),
        oldest_first(database, journal, evidence.workers),
        lateness(database),
        within_rate(journal, evidence.rate),
        no_lease_left(database),
    ]


def ended_as_meant(database: Connection[Any]) -> Check:
    due, delivered, dead, withdrawn, wrong = _row(
        database,
        """
        select count(*), count(*) filter (where e.status = 'COMPLETED'), count(*) filter (where e.status = 'DEAD'),
               count(*) filter (where e.id is null),
               count(*) filter (where coalesce(e.status, 'gone') <>
                                      case x.fate when 'delivered' then 'COMPLETED' when 'dead' then 'DEAD' else 'gone' end)
          from demo.expected as x left join events as e on e.id = x.event_id
         where x.fate <> 'later'
        """,
    )
    found = f"{delivered:,} sent, {dead:,} dead, {withdrawn:,} gone"
    found += f"; {wrong:,} not as meant" if wrong else ""
    holds = due > 0 and wrong == 0 and due == delivered + dead + withdrawn
    return Check("due messages that ended", f"{due:,}", found, "database", holds)


def nothing_left(database: Connection[Any]) -> Check:
    (left,) = _row(
        database,
        """
        select count(*) from events
         where target_timestamp_utc <= now() and status not in ('COMPLETED', 'DEAD') or status in ('PROCESSING', 'FAILED')
        """,
    )
    return Check("waiting, stuck or failed", "0", f"{left:,}", "database", left == 0)


def received(database: Connection[Any], journal: Journal) -> Check:
    completed = {key for (key,) in database.execute("select id::text from events where status = 'COMPLETED'")}
    missing, strange = len(completed - journal.keys), len(journal.keys - completed)
    found = f"{len(journal.keys):,}"
    found += f"; {missing:,} missing, {strange:,} not known" if missing or strange else ""
    holds = bool(completed) and not (missing or strange)
    return Check("sent, and at the receiver", f"{len(completed):,}", found, "both", holds)


def none_twice(journal: Journal) -> Check:
    changed, again = journal.changed(), journal.again()
    found = f"{changed:,} ({again:,} known by their key)" if again else f"{changed:,}"
    return Check("duplicates taken for new", "0", found, "receiver", bool(journal.keys) and changed == 0)


def right_names(database: Connection[Any], journal: Journal) -> Check:
    names = database.execute(
        "select e.id::text, u.first_name || ' ' || u.last_name from events as e join users as u on u.id = e.user_id"
        " where e.status = 'COMPLETED'"
    ).fetchall()
    first = journal.first()
    right = sum(key in first and first[key].message == f"Hey, {name} it's your birthday" for key, name in names)
    claim = "names intact, quotes and 🎂"
    return Check(claim, f"{len(names):,}", f"{right:,}", "both", bool(names) and right == len(names))


def withdrawn_not_sent(database: Connection[Any], journal: Journal) -> Check:
    gone = [key for (key,) in database.execute("select event_id::text from demo.expected where fate = 'withdrawn'")]
    sent = sum(arrival.key in gone for arrival in journal.arrivals)
    return Check("sent to who had left", "0", f"{sent:,}", "receiver", bool(gone) and sent == 0)


def refused_is_dead(database: Connection[Any], journal: Journal) -> Check:
    meant = {key for (key,) in database.execute("select event_id::text from demo.expected where fate = 'dead'")}
    dead = dict(database.execute("select id::text, attempts from events where status = 'DEAD'").fetchall())
    holds = bool(meant) and set(dead) == meant == {arrival.key for arrival in journal.arrivals if arrival.unwanted}
    attempts = ", ".join(str(attempts) for attempts in dead.values())
    found = f"{len(dead):,}, after {attempts} attempt" + ("s" if attempts != "1" else "")
    return Check("dead: refused by receiver", f"{len(meant):,}", found, "both", holds)


def later_left_alone(database: Connection[Any], journal: Journal) -> Check:
    later = database.execute(
        "select x.event_id::text, e.status = 'PENDING' and e.version = 0 and e.attempts = 0"
        " from demo.expected as x left join events as e on e.id = x.event_id where x.fate = 'later'"
    ).fetchall()
    alone = sum(bool(untouched) and key not in journal.keys for key, untouched in later)
    claim = "not due yet, left alone"
    return Check(claim, f"{len(later):,}", f"{alone:,}", "both", bool(later) and alone == len(later))


def next_year_planned(database: Connection[Any]) -> Check:
    ended, planned = _row(
        database,
        """
        select count(*), count(*) filter (where 1 = (
                 select count(*) from events as n
                  where n.user_id = e.user_id and n.id <> e.id and n.status = 'PENDING' and n.target_year > e.target_year))
          from demo.expected as x join events as e on e.id = x.event_id
         where x.fate in ('delivered', 'dead')
        """,
    )
    holds = ended > 0 and ended == planned
    return Check("next year's planned, once", f"{ended:,}", f"{planned:,}", "database", holds)


def taken_over(database: Connection[Any]) -> Check:
    workers, lost, ended = _row(
        database,
        """
        select count(distinct l.worker), count(*), count(*) filter (where e.status in ('COMPLETED', 'DEAD'))
          from demo.losses as l left join events as e on e.id::text = l.key
        """,
    )
    found = f"{ended:,}, from {workers:,} workers"
    return Check("taken over from the lost", f"{lost:,}", found, "database", workers >= 2 and lost == ended)


def late_finishes_refused(database: Connection[Any], refused: int) -> Check:
    # A message is executed at the time of its last claim: a claim from before the loss belongs to the worker that was lost.
    (written,) = _row(
        database,
        """
        select count(*) from demo.losses as l join events as e on e.id::text = l.key where e.executed_at < l.seen_at
        """,
    )
    found = f"{refused:,}, and {written:,} written"
    return Check("late finishes refused", "≥ 1", found, "logs", refused > 0 and written == 0)


def oldest_first(database: Connection[Any], journal: Journal, workers: int) -> Check:
    """A message may come before one that was due earlier only where a worker held that one, or had held it."""
    due = dict(database.execute("select event_id::text, due_at from demo.expected").fetchall())
    overtaken, most = journal.overtaken(due), workers * IN_HAND
    holds = bool(journal.keys) and overtaken <= most
    return Check("overtaken by a later one", f"≤ {most:,}", f"{overtaken:,}, oldest first", "receiver", holds)


def lateness(database: Connection[Any]) -> Check:
    worst, average, downtime = _row(
        database,
        """
        select max(executed_at - target_timestamp_utc), avg(executed_at - target_timestamp_utc),
               (select max(until - since) from trueup.downtimes)
          from events where status = 'COMPLETED'
        """,
    )
    if worst is None or downtime is None:
        return Check("worst lateness", "24h", "nothing was late", "database", False)
    most = downtime + timedelta(minutes=30)
    found = f"{hours(worst)}, average {hours(average)}"
    holds = downtime >= DOWNTIME and MIN_WORST < worst < most
    return Check("worst lateness", f"≤ {hours(most)}", found, "database", holds)


def within_rate(journal: Journal, rate: int) -> Check:
    busiest, seconds = journal.busiest(STRETCH), journal.seconds
    average = len(journal.arrivals) / seconds if seconds else 0.0
    found = f"{busiest:.0f} at most, {average:.0f} on average"
    most = rate * (1 + SLACK)
    claim = f"a second, {rate:,} allowed"
    return Check(claim, f"≤ {most:.0f}", found, "receiver", bool(journal.arrivals) and busiest <= most)


def no_lease_left(database: Connection[Any]) -> Check:
    (left,) = _row(
        database,
        "select (select count(*) from trueup.workers) + (select count(*) from trueup.rows) + (select count(*) from trueup.jobs)",
    )
    return Check("leases and claims left", "0", f"{left:,}", "database", left == 0)


def _row(database: Connection[Any], query: LiteralString) -> tuple[Any, ...]:
    (row,) = database.execute(query).fetchall()
    return tuple(row)
