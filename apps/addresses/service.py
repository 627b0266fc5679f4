"""The application: a schedule that makes jobs, a reconciler that does them. Each is there only if it is enabled."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from apps.chain.reader import Reader
from apps.chain.rpc import Rpc
from trueup import Again, App, Context, Failed, Retry, Tick, To, Worker
from trueup.events import Event, JobRescued
from trueup.web.database import prepare_database
from trueup.web.service import database_down, own_app

from . import books
from .chains import known
from .config import Config
from .jobs import Job, NotMonitored
from .provider import Provider
from .reconciling import NoProvider, Reconciliation
from .scheduling import Created, create_jobs, try_lock

log = logging.getLogger("addresses")

SCHEDULE = "schedule_partial_reconciliation"
RECONCILER = "reconcile_address"
# Of their own, so that an instance without the scheduler does not take the schedule for one that was removed from the code.
QUEUE = "reconciliation-scheduler"
SCHEDULING = Retry(max_attempts=4, first="1s", factor=2, cap="30s")
RECONCILING = Retry(max_attempts=5, first="5s", factor=3, cap="10m", give_up_on=(NoProvider, NotMonitored))
PURGE_JOBS, PURGE_AUDIT, PURGE_EVERY = "purge_reconciliation_jobs", "purge_reconciliation_audit", "1h"
TURN_WITHIN = timedelta(hours=1)  # the longest that App.rate waits: a job ends by its own deadline, long before
SLACK = timedelta(minutes=1)  # a page that was begun just before the turn is over, and its deletions


@dataclass(frozen=True)
class Service:
    app: App
    config: Config
    providers: Mapping[str, Provider]

    async def prepare(self) -> None:
        """Make the tables; any number of processes may do so at once. Raises ConfigError when trueup's own are not there."""
        await prepare_database(self.app, books.make_tables)

    @property
    def has_work(self) -> bool:
        return self.config.scheduler_enabled or self.config.worker_enabled

    def worker(self) -> Worker:
        """For what is enabled. Only schedulers serve the schedule's queue."""
        return self.app.worker(queues=[QUEUE] if self.config.scheduler_enabled else ["default"])

    async def down(self) -> dict[str, str]:
        """What cannot be reached, and why."""
        return await database_down(self.app)

    async def close(self) -> None:
        for provider in self.providers.values():
            await provider.aclose()
        await self.app.close()


def build_configured() -> Service:
    """As the environment says. Raises ConfigError."""
    return build(Config.from_environment())


def build(config: Config, app: App | None = None) -> Service:
    """Raises ConfigError when it cannot be configured so."""
    app = app or own_app("addresses")
    service = Service(app, config, {chain: _provider(app, chain, config) for chain in config.providers})
    if config.scheduler_enabled:
        _register_schedule(app, config)
    if config.worker_enabled:
        silence, turn_for = config.lease_for, config.turn_for
        reconciliation = Reconciliation(app, service.providers, turn_for=turn_for, silence=silence)
        _register_reconciler(app, config, reconciliation)
        _register_purges(app, config)
    return service


def _provider(app: App, chain: str, config: Config) -> Provider:
    url = config.providers[chain]
    host = urlsplit(url).netloc.rpartition("@")[2]  # chains that share a provider share its limit
    limit = "provider:" + re.sub(r"[^A-Za-z0-9_.:-]", "_", host)  # the brackets of [::1] are not for names
    rpc = Rpc(url, timeout=config.provider_timeout)

    async def turn() -> None:
        await app.rate(limit, config.provider_rate, wait=TURN_WITHIN)

    reader = Reader(rpc, known(chain).chain_id, name=chain, turn=turn, page=config.page_blocks)

    async def addresses() -> frozenset[str]:
        async with app.transaction() as tx:
            return await books.addresses(tx, chain)

    fresh_for = config.tip_fresh_for.total_seconds()
    return Provider(reader, addresses, fresh_for=fresh_for, elapsed=app.clock.elapsed)


# -- the schedule -----------------------------------------------------------------------------------------------------


def _register_schedule(app: App, config: Config) -> None:
    lease_for = app.settings.lease_for

    @app.cron(config.cron, tz="UTC", name=SCHEDULE, queue=QUEUE, retry=SCHEDULING, timeout="10m")
    async def schedule_partial_reconciliation(tick: Tick, ctx: Context) -> None:
        started = time.monotonic()
        facts = {"tick": tick.due_at.isoformat(), "attempt": ctx.attempt}
        log.info("Reconciliation scheduling started", extra=facts)
        created = Created()
        locked = False

        def took() -> int:
            return round((time.monotonic() - started) * 1000)

        def result() -> dict[str, object]:
            counts = {name: value for name, value in asdict(created).items() if name != "bad"}
            return {**counts, "skipped": not locked, "lock_acquired": locked}

        try:
            async with ctx.transaction(result) as tx:
                # A second attempt may come upon the lock of the first, whose process is dead or frozen: the server ends its
                # transaction when it has been silent for a lease.
                locked = await try_lock(tx, wait=timedelta() if ctx.attempt == 1 else lease_for + timedelta(seconds=5))
                if locked:
                    created = await create_jobs(tx, tick.due_at)
        except Exception as error:
            _tell_failed(
                ctx,
                {**facts, "lock_acquired": locked, "duration_ms": took(), "error": f"{type(error).__name__}: {error}"},
            )
            raise
        _tell_created(created, {**facts, **result(), "duration_ms": took()})

    app.events.subscribe(_tell_died, JobRescued)


def _tell_created(created: Created, facts: Mapping[str, object]) -> None:
    for bad in created.bad:
        log.error("Address not scheduled", extra={"address": bad.address, "chain": bad.chain, "error": bad.why})
    if facts["skipped"]:
        log.info("Another instance handling", extra=facts)
    elif created.errors:
        log.warning("Reconciliation scheduling completed with errors", extra=facts)
    else:
        log.info("Reconciliation scheduling completed", extra=facts)


def _tell_failed(ctx: Context, facts: Mapping[str, object]) -> None:
    if ctx.attempt >= ctx.job.max_attempts:
        log.critical("Reconciliation scheduling exhausted", extra=facts)
        return
    delay = SCHEDULING.delay(ctx.attempt)
    log.warning(
        "Reconciliation scheduling failed, retrying", extra={**facts, "delay_ms": delay // timedelta(milliseconds=1)}
    )


def _tell_died(event: Event) -> None:
    """Of an instance that died while it was creating jobs, nothing was created; another one tries again, or it was the last time."""
    if not isinstance(event, JobRescued) or event.kind != SCHEDULE:
        return
    facts = {"attempt": event.attempt, "error": f"the instance died (pid {event.pid} on {event.host})"}
    if event.state == "dead":
        log.critical("Reconciliation scheduling exhausted", extra=facts)
    else:
        log.warning("Reconciliation scheduling failed, retrying", extra=facts)


# -- the worker -------------------------------------------------------------------------------------------------------


def _register_reconciler(app: App, config: Config, reconciliation: Reconciliation) -> None:
    table = app.table("reconciliation_jobs", key="id", state="status", version="version")

    def failed(_: Job, failed: Failed) -> To:
        return To("pending", attempts=failed.attempt, error=_words(failed))

    def given_up(job: Job, failed: Failed) -> To:
        facts = {"job": job.id, "address": job.address, "chain": job.chain, "attempts": failed.attempt}
        log.error("Reconciliation given up", extra={**facts, "error": _words(failed)})
        return To("failed", attempts=failed.attempt, error=_words(failed))

    @table.reconcile(
        "pending",
        order_by="created_at",
        claimed_as="running",
        name=RECONCILER,
        every=config.polling_interval,
        run_at_start=True,
        batch=config.concurrency,
        concurrency=config.concurrency,
        lease_for=config.lease_for,
        timeout=config.turn_for + SLACK,
        retry=RECONCILING,
        failed=failed,
        exhausted=given_up,
        pause_after=5,
        pause_by="chain",  # one chain's dead node does not stop the others
        pause_for=config.pause_for,
    )
    async def reconcile_address(job: Job, *, ctx: Context) -> Again | None:
        return await reconciliation.run(job, ctx)


def _words(failed: Failed) -> str:
    """The error as people read it, without the module that its type is in."""
    kind, _, said = failed.message.partition(": ")
    return f"{kind.rpartition('.')[2]}: {said}"


def _register_purges(app: App, config: Config) -> None:
    """What is long over goes. What it did to the local copy stays longer, in the audit log."""
    over = app.table("reconciliation_jobs", key="id", state="status", changed_at="completed_at")
    over.delete("completed", "failed", stale_for=config.keep_jobs_for, every=PURGE_EVERY, name=PURGE_JOBS)
    audit = app.table("reconciliation_audit_log", key="id", changed_at="created_at")
    audit.delete(stale_for=config.keep_audit_for, every=PURGE_EVERY, name=PURGE_AUDIT)
