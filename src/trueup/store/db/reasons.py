"""What to tell people when PostgreSQL did not do what it was asked: what happened, in its own words, and what to do next.

"Cannot connect" is only said where nothing answered. A server that answers with a SQLSTATE was reached, so the text says what it did.
"""

from __future__ import annotations

import re

import psycopg

from trueup.program import typed
from trueup.texts import describe

# By SQLSTATE, or by what it begins with; the longest one counts. What the server did, and what to do about it.
ANSWERS = {
    "08": ("lost the connection", "it is unknown whether the statement was executed; repeat it if that does no harm"),
    "08007": ("cannot confirm a commit", "check what was stored before you repeat it"),
    "25006": (
        "is read-only",
        "it is a standby, or a failover is under way, and database_url must point to the primary; or "
        "default_transaction_read_only is on, as some providers set it when a disk is almost full",
    ),
    "25P02": (
        "refuses every statement of a transaction that has failed",
        "roll it back; fix the error of the statement that failed first",
    ),
    "25P03": (
        "ended a transaction that was idle for too long",
        "it was rolled back; run it again, or raise idle_in_transaction_session_timeout",
    ),
    "25P04": (
        "ended a transaction that took too long",
        "it was rolled back; run it again, or raise transaction_timeout",
    ),
    "26": ("no longer has a prepared statement", "repeat it"),
    "28": ("refuses the login", "check user, password and pg_hba.conf"),
    "3D": ("has no such database", "check database_url, or create the database"),
    "40001": (
        "rolled the transaction back because of a concurrent one",
        "it was rolled back; run it again",
    ),
    "40P01": ("rolled the transaction back to end a deadlock", "it was rolled back; run it again"),
    "42501": ("refuses: its user lacks a privilege", "grant it, or use another role in database_url"),
    "53": ("ran out of a resource", "free some of it on the server, and repeat"),
    "53100": ("has no disk space left", "free some on the server, and repeat"),
    "53200": ("has no memory left", "free some on the server, and repeat"),
    "53300": ("has no connection left", "raise max_connections, or lower pool_size or the number of workers"),
    "55P03": (
        "waited too long for a lock",
        "find the session that holds it (pg_blocking_pids), and repeat when it is free; lock_timeout sets how long to wait",
    ),
    "57014": (
        "cancelled the statement",
        "it took longer than statement_timeout, or was cancelled; find out what it waited for, and repeat it",
    ),
    "57P0": (
        "closed the connection",
        "it is unknown whether the statement was executed; repeat it if that does no harm",
    ),
    "57P03": ("is starting or stopping", "try again in a moment"),
    "57P05": (
        "closed a connection that was idle for too long",
        "idle_session_timeout is too short; run: alter role … set idle_session_timeout = 0",
    ),
    "58": ("reports an I/O error", "see its log"),
}
# How psycopg says that an open connection broke. libpq's words may be translated, these are not.
BROKEN = ("consuming input failed", "sending ", "flushing failed", "the connection is lost", "the connection is closed")

NO_CONNECTION_LEFT = "wait until some end, raise the limit, or lower pool_size or the number of workers"
# libpq passes no SQLSTATE on when a connection fails, only the words; the first of these that are found count. A server may
# translate them; then the last advice is given.
CANNOT_CONNECT = {
    "password authentication failed": "check user and password in database_url",
    "authentication failed": "check user and password in database_url, and pg_hba.conf on the server",
    "no password supplied": "give one in database_url, PGPASSWORD or ~/.pgpass",
    "no pg_hba.conf entry": "pg_hba.conf on the server must allow this user, database and address",
    "pg_hba.conf rejects": "pg_hba.conf on the server must allow this user, database and address",
    "too many connections": NO_CONNECTION_LEFT,
    "too many clients": NO_CONNECTION_LEFT,
    "connection slots are reserved": NO_CONNECTION_LEFT,
    "no more connections allowed": NO_CONNECTION_LEFT,  # PgBouncer's words
    "permission denied for database": "grant connect on it to the user of database_url",
    "is not permitted to log in": "alter role … login, or name another one in database_url",
    "not currently accepting connections": "alter database … allow_connections true, or name another one in database_url",
    "the database system is": "try again in a moment",
    "not yet accepting connections": "try again in a moment",
    "does not support SSL": "remove sslmode from database_url, or switch TLS on at the server",
    "certificate": "check sslmode, sslrootcert and the host in database_url",
    "SSL error": "check sslmode in database_url",
    "timeout expired": "check host and port in database_url, and what lies between here and there; connect_timeout says how long to wait",
    "No route to host": "check the host in database_url, and what lies between here and there",
    "Network is unreachable": "check the host in database_url, and what lies between here and there",
    "session is read-only": "no host of database_url is the primary",
    'database "': "create it (createdb), or name another one in database_url",
    "no such database": "check the database in database_url, and [databases] of the pooler",  # PgBouncer's words
    'role "': "create it (createuser), or name another one in database_url",
    "resolve host": "check the host in database_url",
    "Name or service not known": "check the host in database_url",
    "Connection refused": "start the server, or check host and port in database_url",
    "No such file or directory": "start the server, or check host and port in database_url",
}
ASKED_BACK = re.compile(r"\s*Is the server running [^?]*\?")  # libpq's advice; ours says more
CHECK_URL = "check that the server runs, and database_url ({config} shows where it comes from)"

NO_OPTIONS = "unsupported startup parameter"  # PgBouncer's words; some of its releases name the parameter
WITHOUT_OPTIONS = "set TRUEUP_SEARCH_PATH=role, and the path for the role (alter role … set search_path = …): this pooler takes none from clients"
STATEMENT_MODE = "statement pooling mode"  # PgBouncer's words
WITHOUT_TRANSACTIONS = "set pool_mode = transaction or session for this database: everything here needs transactions"


def reason(error: BaseException, where: str = "") -> str:
    """`where` is the address without its password; without one it is "the database"."""
    said = describe(error)
    if STATEMENT_MODE in said:
        return f"the pooler{where and f' at {where}'} refuses transactions: {said}; {WITHOUT_TRANSACTIONS}"
    if NO_OPTIONS in said:
        said += f"; {WITHOUT_OPTIONS}"
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state is not None:
        what, advice = next((ANSWERS[state[:n]] for n in (5, 4, 3, 2) if state[:n] in ANSWERS), ("refuses", ""))
        return f"the database{where and f' at {where}'} {what}: {said}{advice and f'; {advice}'}"
    if said.startswith(BROKEN):
        what, advice = ANSWERS["08"]
        return f"the connection to {where or 'the database'} broke: {said}; {advice}"
    check = CHECK_URL.format(config=typed("trueup config"))
    advice = next((advice for words, advice in CANNOT_CONNECT.items() if words in said), check)
    # A line for each address of the host.
    said = "; ".join(line.strip() for line in ASKED_BACK.sub("", said).splitlines())
    return f"cannot connect to {where or 'the database'}: {said}; {advice}"


def advised(error: BaseException) -> str:
    """The same for an error that may also be of something else than PostgreSQL: that is given as it is."""
    return reason(error) if isinstance(error, psycopg.Error) else describe(error)
