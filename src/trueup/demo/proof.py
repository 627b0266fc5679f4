"""The proof: what must be true when everything has ended, each line answered by a query.

Two sides are compared that know nothing of each other: the shop's own tables (what was asked for, what was charged, what
the mail provider received) and trueup's history of its jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection

from trueup.demo.limits import PINGS_PER_SECOND, REPORTS_AT_ONCE

NOTED_LATE = 0.5  # seconds: a ping is noted when it runs, a moment after its start was granted


@dataclass(frozen=True, slots=True)
class Check:
    claim: str
    found: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Pace:
    """From the first job enqueued to the last one ended."""

    jobs: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds if self.seconds else 0.0


def examine(connection: Connection[Any], *, refused: int) -> list[Check]:
    """Every claim with what was found; `refused` is how many late finishes the workers say were refused."""
    return [
        ended_as_asked(connection),
        nothing_left(connection),
        no_job_twice(connection),
        charged_once(connection),
        charged_by_the_last_claim(connection),
        mailed(connection),
        failures_tried_again(connection),
        taken_over(connection),
        late_finishes_refused(connection, refused),
        reports_limited(connection),
        pings_limited(connection),
        no_lease_left(connection),
    ]


def pace(connection: Connection[Any]) -> Pace:
    jobs, seconds = _row(
        connection,
        "select count(*), extract(epoch from max(finished_at) - min(enqueued_at))::float8 from trueup.history",
    )
    return Pace(jobs, seconds or 0.0)


def ended_as_asked(connection: Connection[Any]) -> Check:
    rows = connection.execute("""
        select kind, state, coalesce(asked, 0), coalesce(found, 0)
          from (select kind, ending as state, sum(jobs)::bigint as asked from shop.asked group by kind, ending) as a
          full join (select kind, state, count(*) as found from trueup.history group by kind, state) as h using (kind, state)
         order by kind, state
    """).fetchall()
    wrong = [f"{kind}: {found:,} of {asked:,} {state}" for kind, state, asked, found in rows if asked != found]
    by_state = {
        name: sum(found for _, state, _, found in rows if state == name) for name in ("done", "dead", "cancelled")
    }
    total = sum(asked for _, _, asked, _ in rows)
    sums = " + ".join(f"{count:,} {state}" for state, count in by_state.items())
    return Check(
        "every job ended as it was meant to", ", ".join(wrong) or f"{total:,} = {sums}", bool(rows) and not wrong
    )


def nothing_left(connection: Connection[Any]) -> Check:
    (left,) = _row(connection, "select count(*) from trueup.jobs")
    return Check("none was lost on the way", f"{left:,} still queued or running", left == 0)


def no_job_twice(connection: Connection[Any]) -> Check:
    (doubles,) = _row(connection, "select count(*) - count(distinct id) from trueup.history")
    return Check("none ended twice", f"{doubles:,} twice in the history", doubles == 0)


def charged_once(connection: Connection[Any]) -> Check:
    orders, missing, doubled, strange = _row(
        connection,
        """
        select count(o.id), count(*) filter (where l.rows is null), count(*) filter (where l.rows > 1),
               count(*) filter (where o.id is null or o.amount <> l.least or o.amount <> l.most)
          from shop.orders as o
          full join (select order_id, count(*) as rows, min(amount) as least, max(amount) as most
                       from shop.ledger group by order_id) as l on l.order_id = o.id
        """,
    )
    found = f"{orders:,} orders: {missing:,} not charged, {doubled:,} charged twice"
    found += f", {strange:,} charged wrongly" if strange else ""
    return Check("every order was charged exactly once", found, orders > 0 and not (missing or doubled or strange))


def charged_by_the_last_claim(connection: Connection[Any]) -> Check:
    rows, others = _row(
        connection,
        """
        select count(*), count(*) filter (where not exists (
                 select from trueup.history as h where h.id = l.job_id and h.state = 'done' and h.term = l.term))
          from shop.ledger as l
        """,
    )
    return Check(
        "and by the claim that finished the job", f"{others:,} of {rows:,} by another", rows > 0 and others == 0
    )


def mailed(connection: Connection[Any]) -> Check:
    orders, keys, right, again = _row(
        connection,
        """
        select (select count(*) from shop.orders), count(*), count(distinct m.order_id) filter (where o.id is not null),
               coalesce(sum(m.deliveries - 1), 0)
          from shop.mails as m left join shop.orders as o on o.id = m.order_id
        """,
    )
    found = f"{right:,} of {orders:,} under {keys:,} keys; {again:,} repeated, same key"
    return Check("every order has its mail, under one key", found, orders > 0 and orders == keys == right)


def failures_tried_again(connection: Connection[Any]) -> Check:
    failed, done = _row(
        connection,
        """
        select count(*), count(*) filter (where state = 'done' and attempt > 1)
          from trueup.history
         where kind = 'resize' and errors @? '$[*] ? (@.type like_regex "PictureBusy$")'
        """,
    )
    return Check("what failed at first was tried again", f"{done:,} of {failed:,} done after all", done == failed)


def taken_over(connection: Connection[Any]) -> Check:
    workers, lucky, jobs = _row(
        connection,
        """
        with lost as (
          select h.id, e ->> 'message' as message
            from trueup.history as h, jsonb_array_elements(h.errors) as e where e ->> 'type' = 'WorkerLost'
        ), gone as (
          select distinct worker, pid from shop.losses
        )
        select (select count(*) from gone),
               (select count(*) from gone where not exists (select from lost where message like '%pid ' || gone.pid || ')')),
               (select count(*) from lost)
        """,
    )
    found = f"{jobs:,} takeovers from {workers:,} lost workers"
    return Check("others took over from the lost workers", found, workers > 0 and lucky == 0)


def late_finishes_refused(connection: Connection[Any], refused: int) -> Check:
    (written,) = _row(
        connection,
        """
        select count(*) from trueup.history as h join shop.losses as l on l.holder = h.holder and h.finished_at > l.seen_at
        """,
    )
    found = f"{refused:,} refused, {written:,} written"
    return Check("late finishes changed nothing", found, refused > 0 and written == 0)


def reports_limited(connection: Connection[Any]) -> Check:
    # A run that was lost lasted until it was taken over, which its job's errors tell.
    (peak,) = _row(
        connection,
        """
        with runs as (
          select r.started_at, coalesce(r.ended_at, (
                   select min((e ->> 'at')::timestamptz) from trueup.history as h, jsonb_array_elements(h.errors) as e
                    where h.id = r.job_id and (e ->> 'attempt')::int = r.attempt), 'infinity') as ended_at
            from shop.reports as r
        )
        select coalesce(max((select count(*) from runs as other
                              where other.started_at <= runs.started_at and other.ended_at > runs.started_at)), 0)
          from runs
        """,
    )
    found = f"{peak:,} at the busiest moment"
    return Check(f"at most {REPORTS_AT_ONCE} reports ran at once", found, 0 < peak <= REPORTS_AT_ONCE)


def pings_limited(connection: Connection[Any]) -> Check:
    count, seconds = _row(
        connection, "select count(*), coalesce(extract(epoch from max(at) - min(at)), 0)::float8 from shop.pings"
    )
    holds = count > 0 and seconds + NOTED_LATE >= (count - 1) / PINGS_PER_SECOND
    return Check(f"at most {PINGS_PER_SECOND} pings a second", f"{count:,} in {seconds:.1f} s", holds)


def no_lease_left(connection: Connection[Any]) -> Check:
    (leases,) = _row(connection, "select count(*) from trueup.workers")
    return Check("no lease is left behind", f"{leases:,} left", leases == 0)


def _row(connection: Connection[Any], query: LiteralString) -> tuple[Any, ...]:
    (row,) = connection.execute(query).fetchall()
    return tuple(row)
