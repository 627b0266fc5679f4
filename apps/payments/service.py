"""The application: one reconciler over `app.payment_requests`, on any number of replicas.

A request that is looked at is a row whose `next_observation_at` has come, longest ago first; each look puts it off. So the rows
themselves, in one index, are the queue: no row waits behind one that was looked at after it. What was seen and what follows
from it are written together, and only by the process that still holds the row's lease.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from trueup import Again, App, Context, Retry, Stay, To
from trueup.web.database import prepare_database
from trueup.web.service import database_down, own_app

from . import migrate, requests
from .chains import make_observers
from .config import Config
from .judge import Settlement, Status, Verdict, judge
from .observe import Observation, Observer, ObserverError, Pace
from .requests import Request
from .watch import Watch

log = logging.getLogger("payments")

RECONCILER = "observe_payment_request"
OBSERVED = (Status.PENDING, Status.DETECTED, Status.CONFIRMED, Status.REORGED, Status.EXPIRED)
FRESH_FOR = timedelta(seconds=1)  # one look at the tip of a chain serves every row meanwhile
# Rows are looked for twice in an interval, and each rests for a little more than half of it: so every second time, once in an
# interval. Resting for all of it would mean missing the next time by a moment, and coming round in two.
LOOKS, REST = 2, 0.6
# What is confirmed or expired changes ever more rarely: it rests for a tenth of the time since, and at most for this long.
CALM, MAX_REST = 10, timedelta(minutes=10)
CATCHING_UP = timedelta(seconds=1)  # until the next look at a request whose chain is not read to its end


@dataclass(frozen=True)
class Service:
    app: App
    config: Config
    observers: Mapping[str, Observer]
    watch: Watch

    async def prepare(self) -> None:
        """Make the tables; any number of processes may do so at once. Raises ConfigError when trueup's own are not there."""
        await prepare_database(self.app, migrate.migrate)

    def tell(self, text: str) -> None:
        """Of the start and the end of reconciling here."""
        config = self.config
        log.info(
            text,
            extra={
                "worker_id": config.worker_id,
                "poll_interval": config.poll_interval.total_seconds(),
                "lease_duration": config.lease_for.total_seconds(),
            },
        )

    async def down(self) -> dict[str, str]:
        """What cannot be reached, and why."""
        return await database_down(self.app)

    async def close(self) -> None:
        for observer in self.observers.values():
            await observer.aclose()
        await self.app.close()


def build_configured() -> Service:
    """As the environment says. Raises ConfigError."""
    return build(Config.from_environment())


def build(config: Config, app: App | None = None) -> Service:
    """Raises ConfigError when it cannot be configured so."""
    app = app or own_app("payments", tables="app", worker_name=config.worker_id)
    pace = Pace(config.observer_timeout, min(FRESH_FOR, config.poll_interval), app.clock.elapsed)
    observers = make_observers(config.nodes, pace)
    watch = Watch(app, RECONCILER, config.worker_id)
    table = app.table(
        "app.payment_requests",
        key="id",
        state="status",
        changed_at="observed_at",
        lease_columns=("reconcile_lease_owner", "reconcile_lease_until"),
    )

    @app.job
    async def tell_people(text: str, facts: dict[str, str]) -> None:
        """A job, so that it is not lost with the process: it is there if and only if what it tells of was written."""
        log.error(text, extra=facts)

    async def observed(request: Request, known: list[Settlement]) -> Observation:
        if request.chain_id not in observers:
            raise ObserverError(
                f"there is no node for chain {request.chain_id}: PAYMENT_REQUEST_CHAINS names the nodes"
            )
        return await observers[request.chain_id].observe(request.subject(known))

    @table.reconcile(
        *OBSERVED,
        due_at="next_observation_at",
        name=RECONCILER,
        every=config.poll_interval / LOOKS,
        run_at_start=True,
        # With more rows than can be looked at in an interval, the first are due again before the last have had their turn.
        deadline=config.poll_interval,
        batch=config.batch_size,
        concurrency=config.concurrency,
        lease_for=config.lease_for,
        # For what is wrong with a row itself, such as a value that the database refuses.
        retry=Retry(max_attempts=100, first="1s", factor=2, cap="5m"),
        timeout=2 * config.observer_timeout + timedelta(seconds=30),
    )
    async def observe_payment_request(request: Request, *, ctx: Context) -> Stay | Again | None:
        known: list[Settlement] = []
        if request.settlement_count:
            async with app.transaction() as tx:
                known = await requests.settlements(tx, request.id)
        try:
            seen = await observed(request, known)
        except ObserverError as error:
            watch.failed(request, error)
            return Again(config.poll_interval)  # the row stays as it is, however long that takes
        watch.scanned()
        # What is new was seen now, and not when the row was claimed: that may be long ago, and before the request expired.
        is_new = {each.key for each in seen.transfers} - {each.key for each in known}
        now = await app.now() if is_new else ctx.now
        verdict = judge(request.asked, known, seen, now, config.rules(request.chain_id))
        columns = _columns(request, verdict, seen, ctx, config.poll_interval)
        if verdict.status == request.status and not verdict.settlements:
            return Stay(**columns)
        columns["settlement_count"] = len({each.key for each in [*known, *verdict.settlements]})
        about = {"request_id": str(request.id), "chain_id": request.chain_id}
        then = [tell_people.call(alert.text, {**about, **alert.facts}) for alert in verdict.alerts]
        outcome: To | Stay = Stay(then=then, **columns)
        if verdict.status != request.status:
            outcome = To(verdict.status, then=then, status_changed_at=ctx.now, **columns)
        async with ctx.transaction(outcome) as tx:
            await requests.put_settlements(tx, request.id, verdict.settlements)
        return None

    return Service(app, config, observers, watch)


def _columns(
    request: Request, verdict: Verdict, seen: Observation, ctx: Context, poll_interval: timedelta
) -> dict[str, Any]:
    """The same ones each time, so that the rows of a batch are written together."""
    wait = min(poll_interval, CATCHING_UP)
    if seen.complete:
        wait = poll_interval * REST
        if verdict.status == request.status and verdict.status in (Status.CONFIRMED, Status.EXPIRED):
            wait = max(wait, min((ctx.now - request.status_changed_at) / CALM, MAX_REST))
    scanned_block, scanned_hash = seen.scanned or (None, None)
    return {
        "next_observation_at": ctx.now + wait if verdict.look_again else None,
        "first_block": seen.first_block,
        "scanned_block": scanned_block,
        "scanned_hash": scanned_hash,
        "received_amount": verdict.received,
        "late_amount": verdict.late,
        "excess_amount": verdict.excess,
        "settlement_count": request.settlement_count,
    }
