"""How trueup connects, and which errors mean "try again" rather than "this is wrong".

Nothing here needs a session: no SET, no session lock, and server-side prepared statements only without a pooler. So a pooler
in transaction mode works. TCP keepalives detect half-open connections.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from trueup.dsn import mask
from trueup.errors import ConfigError, DatabaseUnavailable
from trueup.store.db import message
from trueup.store.db.confirmed import AsyncConfirmedConnection, Unconfirmed
from trueup.store.db.load import source
from trueup.store.db.message import StalePlan
from trueup.store.db.reasons import STATEMENT_MODE, reason
from trueup.texts import describe

# The server has ended a transaction that took too long, or whose client was silent, and closed the connection.
OVERRUN = (errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout)
RETRYABLE = (
    psycopg.OperationalError,  # also deadlocks, serialisation failures, shutdowns, exhausted connections
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,  # connected to a standby: the primary will be elsewhere in a moment
    *OVERRUN,  # this process was frozen, or a timeout of the role's is too short
    ConnectionError,
    TimeoutError,
)

# What a server says when it, not the statement, is the reason: it starts, stops, is full, or chose another transaction.
AWAY_CLASSES = ("08", "57P0")
AWAY = frozenset(
    {
        errors.TooManyConnections.sqlstate,
        errors.SerializationFailure.sqlstate,
        errors.DeadlockDetected.sqlstate,
        errors.ReadOnlySqlTransaction.sqlstate,
        *(each.sqlstate for each in OVERRUN),
        errors.InvalidSqlStatementName.sqlstate,  # it has forgotten a prepared statement, which is prepared anew
    }
)
PASSING_CLASSES = ("53", "58")  # out of disk or memory, an I/O error: of the whole server, or met by one row alone
PASSING = frozenset({errors.QueryCanceled.sqlstate, errors.LockNotAvailable.sqlstate})


def is_away(error: BaseException) -> bool:
    """Whether the database is unreachable, or asks to repeat the statement. Everything else is the statement's own fault."""
    if isinstance(error, psycopg.Error):
        state = error.sqlstate
        if state is None:  # no answer from a server; psycopg also raises its own DataError for a value it cannot send
            return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return state.startswith(AWAY_CLASSES) or state in AWAY
    return isinstance(error, ConnectionError | TimeoutError | DatabaseUnavailable)


def is_no_fault(error: BaseException) -> bool:
    """Whether a handler could not have avoided the error that undid its transaction. One that took too long could."""
    return is_away(error) and not isinstance(error, OVERRUN)


def unanswered(error: BaseException) -> bool:
    """Whether the server is away, or hung up, or cannot vouch for a commit: the outcome of the statement is unknown.

    A session that is terminated at its commit says so although it has committed.
    """
    if not is_away(error):
        return False
    if not isinstance(error, psycopg.Error) or error.sqlstate is None or isinstance(error, Unconfirmed):
        return True
    if isinstance(error, StalePlan | errors.IdleInTransactionSessionTimeout):
        return False  # the transaction was rolled back, which is an answer
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def refused(error: BaseException) -> bool:
    """Whether the server has refused a statement, or asks to repeat it, on a connection that is as good as before."""
    if not isinstance(error, psycopg.Error) or error.sqlstate is None or unanswered(error):
        return False
    return not is_away(error) or isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)


def is_locked_out(error: BaseException) -> bool:
    """Whether a statement was given up because of a lock that another session has; or a trigger says so."""
    return isinstance(error, errors.LockNotAvailable)


def may_pass(error: BaseException) -> bool:
    """Whether a refusal is transient: a lock, a timeout, a full disk. It may concern one row or the whole server."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and not is_away(error) and (state.startswith(PASSING_CLASSES) or state in PASSING)


# What PostgreSQL, PgBouncer and libpq say in English about a connection that waiting does not cure. libpq keeps the SQLSTATE of a
# failed connection to itself, and both the server and libpq may speak another language.
PERMANENT = (
    "authentication failed",
    "does not exist",  # a role, a database, a file with certificates
    "is not permitted to log in",
    "permission denied",
    "pg_hba.conf",
    "no such database",  # PgBouncer
    "no such user",
    "no password supplied",
    "unsupported ",  # startup parameter, frontend protocol
    "unrecognized ",  # configuration parameter
    "invalid ",  # sslmode value, port number, value for parameter
    "certificate",
    "SSL was required",
    "does not support SSL",
)


def restarts(error: BaseException) -> bool:
    """Whether a connection may have failed for a transient reason: always, unless the error says that the reason is permanent.

    A text in another language is taken for transient. That costs a worker with a wrong password `start_within`; the contrary
    would end every worker that starts while a server restarts whose messages are translated.
    """
    text = str(error)
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return is_away(error) and STATEMENT_MODE not in text
    return not any(phrase in text for phrase in PERMANENT)


def unavailable(url: str, error: Exception) -> DatabaseUnavailable:
    """The error for people: the database cannot be reached, or ended the connection."""
    raised = DatabaseUnavailable(reason(error, mask(url)))
    raised.may_pass = restarts(error)
    return raised


@contextmanager
def connecting(url: str) -> Iterator[None]:
    """Around making a connection. Raises DatabaseUnavailable, with the address and without the password, when that fails."""
    try:
        yield
    except RETRYABLE as error:
        raise unavailable(url, error) from error


TIMED_OUT = (errors.LockNotAvailable, errors.QueryCanceled)
NOT_ALLOWED = errors.InsufficientPrivilege

LIMIT = source("session/limit").encode()
# Of the time after which the client gives up: the server ends the statement earlier, and says why.
STATEMENT_SHARE, LOCK_SHARE = 0.9, 0.8
# A process frozen between two statements must not keep its locks: its worker's row could not be rescued, its lane not used.
SILENT_FOR = timedelta(seconds=2)
CANCEL_WITHIN = 1.0  # seconds for a cancel request to reach the server, and at most
CANCEL_SHARE = 0.1  # of the time that the statement had: a server that is unreachable must not cost much more time

# psycopg prepares a statement on such a connection when that is asked for, and none by itself: a plan that is made once for all
# values is a bad one for statements over many rows.
ON_REQUEST = 1_000_000_000
PID = b"select pg_catalog.pg_backend_pid()"
EXEMPT = source("session/exempt").encode()

ARRAY_NULLS = b"select pg_catalog.current_setting('array_nulls')"
ISO_DATES = b"set datestyle to iso"
PLAIN_INTERVALS = b"set intervalstyle to postgres"
# What undoes all that a session was told: together they cost the server 6 µs, and need no list of settings.
OWN_ROLE, RESET_ALL = b"reset role", b"reset all"
OWN_SESSION = [b"reset session authorization", OWN_ROLE]
# What users' code leaves in a session beside settings: a lock, say, for which others would wait for ever.
LEFT_BEHIND = [b"select pg_catalog.pg_advisory_unlock_all()", b"unlisten *", b"close all", b"discard temp"]
OUR_DEFAULTS = b"select current_setting('idle_session_timeout'), current_setting('default_transaction_isolation')"

NO_TIMEOUT = 130.0  # seconds that psycopg waits for a server if the URL sets no limit (connect_timeout=0)

KEEPALIVE: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def connection_settings(url: str, part: str, connect_timeout: timedelta, *, prepare: bool = False) -> dict[str, Any]:
    """Keyword arguments for psycopg's connect; what the URL says itself wins.

    With `prepare`, statements can be prepared on the server. Behind a pooler in transaction mode that knows nothing of it, a
    name may mean another client's statement, so it is for those who know that there is none.
    """
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ConfigError(f"database_url is not a PostgreSQL URL: {describe(error)}") from None
    defaults: dict[str, Any] = {
        **KEEPALIVE,
        "client_encoding": "UTF8",  # the encoding of the role or the database may lack characters of jobs' arguments
        "application_name": f"trueup {part}",
        "connect_timeout": max(1, round(connect_timeout.total_seconds())),
    }
    return {**defaults, **given, "autocommit": True, "prepare_threshold": ON_REQUEST if prepare else None}


def connecting_takes(settings: Mapping[str, Any]) -> float:
    """How many seconds connecting may take, and a first answer on the new connection.

    Each server that the URL names has `connect_timeout`: all but the last may be silent.
    """
    try:
        each = float(settings["connect_timeout"])
    except ValueError:
        each = 0.0  # connecting says what is wrong with it
    servers = str(settings.get("hostaddr") or settings.get("host") or "").count(",") + 1
    return (each if each > 0 else NO_TIMEOUT) * (servers + 1)


async def open_connection(settings: dict[str, Any]) -> psycopg.AsyncConnection[Any]:
    connection = await AsyncConfirmedConnection.connect(**settings)
    async with closed_unless_usable(connection):
        await make_readable(connection)
    return connection


@asynccontextmanager
async def closed_unless_usable(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """Around the preparation of a new connection that nothing else refers to yet: closes it after an error or a cancellation."""
    try:
        yield
    except BaseException:
        await connection.close()
        raise


# What users' code may set on a connection as such; what its session was told is undone by the server.
_SETTABLE = ("row_factory", "cursor_factory", "server_cursor_factory", "prepare_threshold", "prepared_max")


@contextmanager
def unaltered(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> Iterator[None]:
    """Around users' code that is given the connection: the next one to get it would otherwise read rows of another shape."""
    before = {name: getattr(connection, name) for name in _SETTABLE}
    handlers: list[list[Any]] = [connection._notice_handlers, connection._notify_handlers]  # they have no public names
    counts = [*map(len, handlers)]
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(connection, name, value)
        for each, count in zip(handlers, counts, strict=True):
            del each[count:]


async def make_readable(connection: psycopg.AsyncConnection[Any]) -> None:
    """Make the server send times as psycopg can read them, independent of role and database settings; free where it does already.

    libpq takes no DateStyle among its parameters, and PgBouncer no `options`. It does remember a DateStyle for each client.
    An IntervalStyle it does not, so that one is set only where no pooler stands in between.
    """
    if not iso_dates(connection):
        await connection.execute(ISO_DATES)
    if not _plain_intervals(connection) and await leads_to_the_server(connection):
        await connection.execute(PLAIN_INTERVALS)


def make_readable_sync(connection: psycopg.Connection[Any]) -> None:
    if not iso_dates(connection):
        connection.execute(ISO_DATES)
    if not _plain_intervals(connection) and leads_to_the_server_sync(connection):
        connection.execute(PLAIN_INTERVALS)


def iso_dates(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> bool:
    return (connection.info.parameter_status("DateStyle") or "ISO").startswith("ISO")


def _plain_intervals(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> bool:
    return (connection.info.parameter_status("IntervalStyle") or "postgres") == "postgres"


def check_array_nulls(row: tuple[Any, ...] | None) -> None:
    """Takes the answer to ARRAY_NULLS. Raises ConfigError where a NULL in an array would be read as the text "NULL": unique keys,
    delays and errors of jobs are sent in arrays."""
    if row != ("on",):
        raise ConfigError(
            "array_nulls is off in this database or for this role, so PostgreSQL reads NULL in arrays as text; "
            "run: alter role … set array_nulls = on"
        )


async def leads_to_the_server(connection: psycopg.AsyncConnection[Any], *, ours: bool = False) -> bool:
    """Whether there is no pooler in between, so that statements can be prepared. If so, `idle_session_timeout` is off from now on,
    and where no transaction of a user's runs (`ours`), each is read committed.

    Poolers give each client a process id of their own, since its statements go to one server process after another.
    """
    row = await (await connection.execute(EXEMPT, {"pid": connection.info.backend_pid, "ours": ours})).fetchone()
    return row is not None and row[0] == "0"


def leads_to_the_server_sync(connection: psycopg.Connection[Any], *, ours: bool = False) -> bool:
    row = connection.execute(EXEMPT, {"pid": connection.info.backend_pid, "ours": ours}).fetchone()
    return row is not None and row[0] == "0"


async def begin_afresh(connection: psycopg.AsyncConnection[Any], *, direct: bool, ours: bool) -> None:
    """Have each transaction on this connection, which runs users' triggers and functions, begin with the session as it was opened.

    Behind a pooler (not `direct`) only the role is reset: the pooler has set everything else for this client.
    """
    if not direct:
        message.begin_afresh(connection, [OWN_ROLE])
        return
    await connection.execute(RESET_ALL)
    again = _set_again(connection, await (await connection.execute(OUR_DEFAULTS)).fetchone(), ours=ours)
    for each in again:
        await connection.execute(each)
    message.begin_afresh(connection, [OWN_ROLE, RESET_ALL, *again])


def afresh_sync(connection: psycopg.Connection[Any], *, ours: bool) -> Sequence[bytes]:
    """The statements with which each transaction on this connection begins, for the same reason."""
    if not leads_to_the_server_sync(connection, ours=ours):
        return OWN_SESSION
    connection.execute(RESET_ALL)
    again = _set_again(connection, connection.execute(OUR_DEFAULTS).fetchone(), ours=ours)
    for each in again:
        connection.execute(each)
    return [*OWN_SESSION, RESET_ALL, *again]


def _set_again(
    connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any], row: tuple[Any, ...] | None, *, ours: bool
) -> list[bytes]:
    """The statements that prepare a session whose settings are the defaults of its role and database. `row` answers OUR_DEFAULTS."""
    assert row is not None
    idle_session_timeout, isolation = row
    needed = (
        (idle_session_timeout != "0", b"set idle_session_timeout to 0"),
        (ours and isolation != "read committed", b"set default_transaction_isolation to 'read committed'"),
        (not iso_dates(connection), ISO_DATES),
        (not _plain_intervals(connection), PLAIN_INTERVALS),
    )
    return [statement for differs, statement in needed if differs]


async def make_ready(connection: psycopg.AsyncConnection[Any], prepare: str, *, ours: bool) -> bool:
    """Prepare a connection for a pool. With `prepare="auto"`, statements are prepared on it unless there is a pooler.

    Returns whether there is no pooler in between.
    """
    await make_readable(connection)
    direct = await leads_to_the_server(connection, ours=ours)
    if direct and prepare == "auto":
        connection.prepare_threshold = ON_REQUEST
    return direct


def make_ready_sync(connection: psycopg.Connection[Any], prepare: str, *, ours: bool) -> bool:
    make_readable_sync(connection)
    direct = leads_to_the_server_sync(connection, ours=ours)
    if direct and prepare == "auto":
        connection.prepare_threshold = ON_REQUEST
    return direct


def limit(timeout: timedelta, lock_timeout: timedelta | None = None) -> bytes:
    """What goes before statements of a client that gives up after `timeout`, and waits for a lock for `lock_timeout`, if given."""
    milliseconds = timeout.total_seconds() * 1000
    for_lock = milliseconds * LOCK_SHARE
    if lock_timeout is not None:
        for_lock = min(for_lock, lock_timeout.total_seconds() * 1000)
    values = {
        b"limit_statement": max(1, round(milliseconds * STATEMENT_SHARE)),
        b"limit_lock": max(1, round(for_lock)),
        b"limit_idle": round(SILENT_FOR.total_seconds() * 1000),
    }
    text = LIMIT
    for name, value in values.items():
        text = text.replace(b"%%(%b)s" % name, b"'%d'" % value)
    return text


async def give_up(connection: psycopg.AsyncConnection[Any], after: float) -> None:
    """Cancel the statement that is running on the server, for up to that many seconds, and then close the connection.

    A backend whose client only hangs up does not notice while it waits for a lock or computes. The cancel request goes first
    because a pooler no longer knows where to send it once its client is gone. It takes a second at most: the server may be unreachable.
    """
    within = min(CANCEL_WITHIN, after * CANCEL_SHARE)
    try:
        with suppress(psycopg.Error, OSError, TimeoutError):
            async with asyncio.timeout(within):
                await connection.cancel_safe(timeout=within)
    finally:
        abort(connection)


def give_up_sync(connection: psycopg.Connection[Any]) -> None:
    """The same, from a thread that may wait."""
    with suppress(psycopg.Error, OSError):
        connection.cancel_safe(timeout=CANCEL_WITHIN)
    abort(connection)


def give_up_aside(connection: psycopg.Connection[Any]) -> None:
    """The same, for callers that must not block: a thread does it."""
    threading.Thread(target=give_up_sync, args=[connection], name="trueup cancel", daemon=True).start()


def abort(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Make the task or thread that waits on this connection fail immediately: its socket is shut, and the waiter closes the connection."""
    try:
        duplicate = socket.socket(fileno=os.dup(connection.fileno()))
    except (OSError, psycopg.Error):
        return
    with duplicate:
        try:
            duplicate.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def went_away(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> bool:
    """Whether an idle connection is closed, or has something to read, which means the server said goodbye. No round trip."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
    return bool(poll.poll(0))
