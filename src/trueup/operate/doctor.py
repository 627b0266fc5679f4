"""`trueup doctor`: is the database set up as trueup needs it? `store/doctor.py` reads the facts; this module judges them. An
error keeps something from working correctly; a warning will cost time or space. Each finding says what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trueup.config import Settings, redis_urls
from trueup.dsn import mask
from trueup.errors import ConfigError, DatabaseUnavailable
from trueup.events import Event, Events, IndexMissing, NaiveTimestamp
from trueup.operate.checks import SILENT, Finding, away, in_time, refused
from trueup.options import shown
from trueup.program import typed
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.schedules.zones import tz_version, zone
from trueup.store import doctor as facts
from trueup.store.db.connect import NOT_ALLOWED
from trueup.store.explained import Explained
from trueup.store.health import Health
from trueup.store.store import Store
from trueup.texts import describe, type_name
from trueup.work.registration import Holder
from trueup.work.rows.services import RowServices

MAX_SKEW = 2.0  # seconds; below it, log lines of two machines can be put in order
REDIS_WITHIN = 3.0  # seconds
OTHERS_WITHIN = 30.0  # seconds, for each function given to `app.on_examine`


@dataclass(frozen=True, slots=True)
class Limits:
    """The thresholds above which there is a finding."""

    idle_for: timedelta = timedelta(minutes=5)  # in an open transaction
    open_for: timedelta = timedelta(hours=1)  # an active transaction
    wal_kept: float = 1 << 30  # bytes kept by a replication slot
    dead_rows: float = 50_000  # in one table, if they are also more than twice its live rows
    connections: float = 0.8  # a share of those that the server, the database or the role may have


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine's clock and time zone data."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    offset: Callable[[str, datetime], float] = lambda name, moment: _offset(name, moment)


async def examine(
    store: Store,
    settings: Settings,
    declared: Sequence[Reconciler | Purge] = (),
    limits: Limits = Limits(),  # noqa: B008 - it is frozen
    machine: Machine = Machine(),  # noqa: B008
) -> tuple[Finding, ...]:
    """All findings; a database that is unreachable or silent, or refuses, is one of them. Raises psycopg's other errors."""
    try:
        async with Explained(store):
            return await in_time(_examined(store, settings, declared, limits, machine), (SILENT,))
    except DatabaseUnavailable as error:
        return away(error).findings
    except NOT_ALLOWED as error:
        return (refused(error, store.statements.schema),)


async def _examined(
    store: Store, settings: Settings, declared: Sequence[Reconciler | Purge], limits: Limits, machine: Machine
) -> tuple[Finding, ...]:
    doctor = facts.Doctor(store.pool, store.statements)
    sent = machine.now()
    server, pooled = await doctor.server()
    skew = _skew(sent, server.now, machine.now())
    found = [*_server(server), *_clock(skew), *(_pooler(settings) if pooled else ())]
    found += _connections(await doctor.connections(), limits)
    found += _sessions(await doctor.transactions(limits.idle_for.total_seconds(), limits.open_for.total_seconds()))
    found += _slots(await doctor.slots(limits.wal_kept))
    refusal = await Health(store.pool, store.statements).refusal()
    if refusal is not None:
        found.append(Finding("schema", "error", refusal.problem, refusal.advice))
    else:
        found += _privileges(server, tables := await doctor.tables(), store.statements.schema)
        found += _vacuum(tables, limits, store.statements.schema)
        found += _indexes(*await doctor.unusable_indexes(), store.statements.schema)
        zones = {each["spec"].get("tz") for each in await store.views.schedules()} - {None, "UTC"}
        found += _zones(await doctor.offsets(sorted(zones)), machine)
        found += await _users_tables(store, settings, declared)
    found += await _redis(settings)
    return tuple(found)


async def examine_others(others: Iterable[Callable[[], Awaitable[Iterable[Finding]]]]) -> list[Finding]:
    """The findings of integrations and users (`app.on_examine`), which run concurrently."""
    return [finding for found in await asyncio.gather(*map(_examine_other, others)) for finding in found]


async def _examine_other(examine: Callable[[], Awaitable[Iterable[Finding]]]) -> list[Finding]:
    try:
        async with asyncio.timeout(OTHERS_WITHIN):
            return [_checked(each) for each in await examine()]
    except Exception as error:  # a user's code
        name = getattr(examine, "__qualname__", None) or type(examine).__qualname__
        why = describe(error) or f"no answer within {OTHERS_WITHIN:g} s"
        advice = "correct it, or the service that it examines; it is registered with app.on_examine"
        return [Finding("examine", "error", f"{name} failed: {type_name(error)}: {why}", advice)]


def _checked(given: object) -> Finding:
    if not isinstance(given, Finding) or given.severity not in ("error", "warning"):
        raise TypeError(f"it returned {shown(given)} and not a trueup.Finding with the severity 'error' or 'warning'")
    return given


def _skew(sent: datetime, there: datetime, received: datetime) -> float:
    """Seconds that this machine's clock is ahead at least, given the round-trip time; negative when it is behind."""
    if there < sent:
        return (sent - there).total_seconds()
    return -(there - received).total_seconds() if there > received else 0.0


def _clock(skew: float) -> Iterator[Finding]:
    if abs(skew) > MAX_SKEW:
        which = "ahead of" if skew > 0 else "behind"
        yield Finding(
            "clock",
            "warning",
            f"this machine's clock is {abs(skew):.0f} s {which} the database server's",
            "run an NTP client (chrony, systemd-timesyncd) on both; only the server's clock decides, but log lines, "
            "signatures of webhooks and TLS go by this one",
        )


def _server(server: facts.ServerFacts) -> Iterator[Finding]:
    if server.standby:
        yield Finding(
            "standby",
            "error",
            "this server is a read-only standby",
            "connect to the primary: name several hosts and target_session_attrs=read-write in the URL",
        )
    if server.compiles:
        yield Finding(
            "jit",
            "warning",
            "just-in-time compilation is on: short statements may take 200 ms longer",
            f"alter role {server.role} set jit = off; trueup's own claims switch it off themselves, yours do not",
        )
    if not server.vacuums:
        yield Finding(
            "autovacuum",
            "error",
            "autovacuum or track_counts is off: dead rows pile up, and claims get slower over time",
            "alter system set autovacuum = on; alter system set track_counts = on; select pg_reload_conf()",
        )


def _connections(found: Sequence[facts.Connections], limits: Limits) -> Iterator[Finding]:
    for each in found:
        if each.taken > limits.connections * each.places:
            yield Finding(
                "connections",
                "warning",
                f"{each.taken} of {each.places} connections of {each.whose} are taken",
                f"raise the limit ({each.setting}), lower pool_size, or put a pooler in between; a worker needs six to ten",
            )


def _pooler(settings: Settings) -> Iterator[Finding]:
    if settings.prepare == "true":
        yield Finding(
            "pooler",
            "error",
            "connections go through a pooler, and prepare=true: a statement's name may be another client's statement",
            "set TRUEUP_PREPARE=auto",
        )
    if settings.listen and settings.notify:
        yield Finding(
            "pooler",
            "warning",
            "connections go through a pooler: in transaction mode notifications do not arrive, and workers poll instead",
            "give workers a URL straight to PostgreSQL, or set TRUEUP_LISTEN=false to poll without this warning",
        )


def _sessions(transactions: Sequence[facts.OpenTransaction]) -> Iterator[Finding]:
    for each in transactions:
        who = f"{each.name or 'a session'} of role {each.role}"
        yield Finding(
            "old_transaction",
            "warning",
            f"{who} has had a transaction open for {each.seconds:.0f} s ({each.state}): vacuum removes no dead rows meanwhile",
            f"end it: {each.ended_by}; {_FROM_NOW_ON.get(each.state, _SHORTER)}",
        )


_SHORTER = "make it shorter, or set statement_timeout or transaction_timeout for that role"
_FROM_NOW_ON = {
    "idle in transaction": "set idle_in_transaction_session_timeout for that role",
    "idle in transaction (aborted)": "set idle_in_transaction_session_timeout for that role",
    "prepared": "the program that prepared it should have ended it, and may know whether to commit it instead",
}


def _slots(slots: Sequence[facts.Slot]) -> Iterator[Finding]:
    for each in slots:
        state = "is active and lags" if each.active else "is not used"
        yield Finding(
            "replication_slot",
            "warning",
            f"replication slot {each.name} {state}: it keeps {each.bytes / (1 << 20):,.0f} MiB of WAL on disk",
            f"bring its reader back, or drop it: select pg_drop_replication_slot('{each.name}')",
        )


def _privileges(server: facts.ServerFacts, tables: Sequence[facts.OurTable], schema: str) -> Iterator[Finding]:
    lacking = [each for each in tables if each.missing]
    if lacking:
        shown = ", ".join(f"{each.name} ({', '.join(each.missing)})" for each in lacking[:5])
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        yield Finding(
            "privileges",
            "error",
            f"role {server.role} lacks privileges on {shown}{more}",
            f"grant select, insert, update, delete on all tables in schema {schema} to {server.role}; "
            f"grant usage on all sequences in schema {schema} to {server.role}",
        )
    elif not server.partitions:
        yield Finding(
            "ownership",
            "warning",
            f"role {server.role} does not own the tables of schema {schema}, or may not create tables in it: it cannot create the daily "
            "partitions of the history",
            f"let workers connect as the role that ran `{typed('trueup migrate')}`, or as a member of it",
        )


def _vacuum(tables: Sequence[facts.OurTable], limits: Limits, schema: str) -> Iterator[Finding]:
    for each in tables:
        if each.unvacuumed:
            yield Finding(
                "autovacuum",
                "error",
                f"autovacuum is off for {schema}.{each.name}",
                f"alter table {schema}.{each.name} reset (autovacuum_enabled, toast.autovacuum_enabled)",
            )
        elif each.dead > limits.dead_rows and each.dead > 2 * each.live:
            yield Finding(
                "autovacuum",
                "warning",
                f"{schema}.{each.name} has {each.dead:,.0f} dead and {each.live:,.0f} live rows",
                f"look for an old transaction; then: vacuum {schema}.{each.name}; raise autovacuum_max_workers if it comes back",
            )


def _indexes(missing: Mapping[str, str], invalid: Sequence[str], schema: str) -> Iterator[Finding]:
    for name, made in missing.items():
        yield Finding("index", "error", f"the index {schema}.{name} is missing", f"{made};")
    for name in invalid:
        yield Finding(
            "index",
            "error",
            f"the index {schema}.{name} is not valid: writes maintain it, but no query uses it",
            f"reindex index concurrently {schema}.{name}",
        )


def _zones(offsets: Sequence[tuple[str, datetime, float]], machine: Machine) -> Iterator[Finding]:
    differing: dict[str, datetime] = {}
    for name, moment, seconds in offsets:
        if name not in differing and machine.offset(name, moment) != seconds:
            differing[name] = moment
    for name, moment in differing.items():
        yield Finding(
            "time_zones",
            "warning",
            f"the server's time zone data and the tzdata package ({tz_version()}) differ about {name} from {moment:%Y-%m} on",
            "install the newest tzdata package wherever a worker runs, by which schedules go, and update the server's",
        )


def _offset(name: str, moment: datetime) -> float:
    offset = moment.astimezone(zone(name)).utcoffset()
    return 0.0 if offset is None else offset.total_seconds()


async def _users_tables(store: Store, settings: Settings, declared: Sequence[Reconciler | Purge]) -> list[Finding]:
    """What a worker would say about the tables of these reconcilers when it starts."""
    found: list[Finding] = []
    events = Events()
    events.subscribe(lambda event: found.extend(_said(event)), IndexMissing, NaiveTimestamp)
    services = RowServices(store, settings, events, declared, Holder())
    try:
        for each in declared:
            try:
                await services.inspect(each)
            except ConfigError as error:
                found.append(Finding("table", "error", str(error), "a worker with this reconciler would not start"))
    finally:
        await services.close()
        for connection in services.connections:
            await connection.close()
    return found


def _said(event: Event) -> Iterator[Finding]:
    match event:
        case NaiveTimestamp(reconciler, table, column, ddl):
            problem = f"reconciler {reconciler!r}: {table}.{column} has no time zone; trueup reads its values as UTC"
            yield Finding("naive_timestamp", "warning", problem, ddl)
        case IndexMissing(reconciler, table, rows, ddl):
            problem = f"reconciler {reconciler!r} reads {rows:,} rows of {table} one by one for each claim"
            yield Finding("index", "warning", problem, ddl)


async def _redis(settings: Settings) -> list[Finding]:
    if settings.redis_url is None:
        return []
    found = []
    for url in redis_urls(settings.redis_url):
        try:
            async with asyncio.timeout(REDIS_WITHIN):
                await asyncio.to_thread(_ping, url)
        except Exception as error:  # of the network, or of Redis
            why = describe(error) or "no answer"
            advice = "start it, or correct redis_url; until then leases with backend='redis' are refused"
            found.append(Finding("redis", "error", f"Redis at {mask(url)} cannot be reached: {why}", advice))
    return found


def _ping(url: str) -> Any:
    import redis  # imported only if Redis is configured: few users install the package

    with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
        return client.ping()
