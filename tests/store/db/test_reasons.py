"""What people are told when PostgreSQL was reached and did not do it: what happened and what to do, never that it cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.database import TestServer
from tests.support.proxy import Proxy
from trueup import App, DatabaseUnavailable, Job
from trueup.cli.errors import report
from trueup.store.db.connect import connecting, is_away, unavailable
from trueup.store.db.reasons import ANSWERS

URL = "postgresql://app:geheim@db/shop"
UNTRUE = ("cannot connect", "went away", "geheim")

# The server's own words come in between.
SAID = {
    "40001": ("rolled the transaction back because of a concurrent one", "run it again"),
    "40P01": ("rolled the transaction back to end a deadlock", "run it again"),
    "55P03": ("waited too long for a lock", "pg_blocking_pids"),
    "57014": ("cancelled the statement", "find out what it waited for"),
    "25P02": ("refuses every statement of a transaction that has failed", "roll it back"),
    "53100": ("has no disk space left", "free some on the server"),
    "53200": ("has no memory left", "free some on the server"),
    "53300": ("has no connection left", "max_connections"),
    "42501": ("its user lacks a privilege", "grant it"),
    "25006": ("is read-only", "primary"),
    "25P03": ("ended a transaction that was idle for too long", "idle_in_transaction_session_timeout"),
    "25P04": ("ended a transaction that took too long", "transaction_timeout"),
    "57P01": ("closed the connection", "unknown"),
    "57P05": ("closed a connection that was idle for too long", "idle_session_timeout"),
    "08006": ("lost the connection", "unknown"),
    "58030": ("reports an I/O error", "see its log"),
    "23514": ("refuses", ""),
}

RAISING = """
create table raised (state text);
insert into raised values ('00000');
create function refuse() returns trigger language plpgsql as $$
declare chosen text := (select state from raised);
begin
  raise exception 'as the server says it' using errcode = chosen;
end $$;
create trigger refuse before insert on trueup.jobs for each row execute function refuse();
"""


def raised(state: str) -> psycopg.Error:
    return psycopg.errors.lookup(state)("as the server says it")


@pytest.mark.parametrize("state", SAID)
def test_what_the_server_did_and_what_to_do_is_said(state: str) -> None:
    what, advice = SAID[state]
    error = unavailable(URL, raised(state))
    before, said, after = str(error).partition("as the server says it")
    assert before.startswith("the database at postgresql://app:***@db/shop ")
    assert what in before
    assert said
    assert advice in after
    assert not any(phrase in str(error) for phrase in UNTRUE)
    assert error.may_pass is is_away(raised(state)), "a worker that starts tries again"


def test_every_advice_is_found() -> None:
    """A longer key wins over a shorter one, and each key is the beginning of a SQLSTATE that exists."""
    known = [
        each.sqlstate for each in vars(psycopg.errors).values() if isinstance(getattr(each, "sqlstate", None), str)
    ]
    for key, (what, _) in ANSWERS.items():
        state = min(
            (each for each in known if each.startswith(key)), key=lambda each: sum(map(each.startswith, ANSWERS))
        )
        assert str(unavailable(URL, raised(state))).startswith(f"the database at postgresql://app:***@db/shop {what}: ")


@pytest.mark.parametrize("state", [state for state in SAID if state != "23514"])
def test_the_command_line_says_the_same(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(raised(state)) in (1, 2)
    printed = capsys.readouterr().err
    assert printed.startswith("error: the database ")
    assert SAID[state][0] in printed
    assert SAID[state][1] in printed


CALLS: dict[str, Callable[[App, Job[..., Any]], Any]] = {
    "enqueue": lambda _, send: send.enqueue(),
    "enqueue_many": lambda _, send: send.enqueue_many([(), ()]),
    "enqueue_sync": lambda _, send: asyncio.to_thread(send.enqueue_sync),
    "enqueue_many_sync": lambda _, send: asyncio.to_thread(send.enqueue_many_sync, [(), ()]),
}


async def in_a_transaction(app: App, send: Job[..., Any]) -> None:
    async with app.transaction() as tx:
        await send.using(tx=tx).enqueue()


@pytest.mark.asyncio
@pytest.mark.parametrize("call", [*CALLS, "in a transaction"])
async def test_callers_learn_the_true_reason(still: App, database_url: str, call: str) -> None:
    """Where the transaction is theirs, they get the driver's own error, which code that repeats transactions looks for."""

    @still.job
    async def send() -> None: ...

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(RAISING.encode())
        for state in ("40001", "40P01", "55P03", "57014", "25P02", "53100", "42501"):
            connection.execute("update raised set state = %s", (state,))
            with pytest.raises((psycopg.Error, DatabaseUnavailable)) as refused:
                await CALLS.get(call, in_a_transaction)(still, send)
            said = str(refused.value)
            assert "as the server says it" in said
            assert not any(phrase in said for phrase in UNTRUE)
            if isinstance(refused.value, DatabaseUnavailable):
                assert state in ("40001", "40P01")
                assert SAID[state][0] in said
                assert call in CALLS
            else:
                assert refused.value.sqlstate == state


@pytest.mark.asyncio
async def test_a_connection_that_breaks_is_not_one_that_could_not_be_made(database_url: str) -> None:
    with Proxy.before(database_url) as proxy:
        async with App(proxy.url(database_url)) as app:

            @app.job
            async def send() -> None: ...

            loss = proxy.drop_next_reply(b"insert into")
            with pytest.raises(
                DatabaseUnavailable, match=r"(?s)^the connection to .* broke: .*; it is unknown whether .*"
            ):
                await send.enqueue()
            loss.wait(5)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ('connection failed: FATAL:  role "ap" does not exist', "createuser"),
        ('connection failed: FATAL:  database "shpo" does not exist', "createdb"),
        ('FATAL:  password authentication failed for user "app"', "check user and password"),
        ("fe_sendauth: no password supplied", "PGPASSWORD"),
        (
            'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "app", database "shop", no encryption',
            "pg_hba.conf on",
        ),
        ("failed to resolve host 'dbb': [Errno -2] Name or service not known", "check the host"),
        ("connection to server at 127.0.0.1, port 1 failed: Connection refused", "start the server"),
        ("FATAL:  sorry, too many clients already", "pool_size"),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", "pool_size"),
        (
            'FATAL:  pg_hba.conf rejects connection for host "10.0.0.1", user "app", database "shop", no encryption',
            "pg_hba.conf on",
        ),
        ('FATAL:  Peer authentication failed for user "app"', "pg_hba.conf"),
        ("FATAL:  the database system is starting up", "in a moment"),
        ("server does not support SSL, but SSL was required", "sslmode"),
        ("SSL error: certificate verify failed", "sslrootcert"),
        ("connection timeout expired", "connect_timeout"),
        ("FATAL:  no more connections allowed (max_client_conn)", "pool_size"),
        ("etwas ist schiefgegangen", "trueup config shows where it comes from"),
    ],
)
def test_a_connection_that_cannot_be_made_comes_with_what_to_check(said: str, advice: str) -> None:
    text = str(unavailable(URL, psycopg.OperationalError(said)))
    assert text.startswith(f"cannot connect to postgresql://app:***@db/shop: {said}; ")
    assert advice in text


REFUSING = {
    "role that may not log in": ("alter role {role} nologin", "alter role … login"),
    "role at its limit": ("alter role {role} connection limit 0", "lower pool_size"),
    "database at its limit": ("alter database {database} connection limit 0", "lower pool_size"),
    "database without the privilege": ("revoke connect on database {database} from public", "grant connect on it"),
    "database that takes none": ("alter database {database} allow_connections false", "allow_connections true"),
    "database that is gone": ("alter database {database} rename to elsewhere", "createdb"),
    "role that is gone": ("alter role {role} rename to someone_else", "createuser"),
}


@pytest.mark.parametrize("why", REFUSING)
def test_a_server_that_refuses_a_connection_comes_with_what_to_change_there(server: TestServer, why: str) -> None:
    """Nothing is to be created that exists."""
    refuse, advice = REFUSING[why]
    with server.database() as url, psycopg.connect(server.cluster.url(), autocommit=True) as admin:
        database, role = conninfo_to_dict(url)["dbname"], "newcomer"
        admin.execute(f"create role {role} login".encode())
        try:
            admin.execute(refuse.format(database=database, role=role).encode())
            with pytest.raises(DatabaseUnavailable) as refused, connecting(url):
                psycopg.connect(make_conninfo(url, user=role)).close()
        finally:
            admin.execute(b"drop role if exists newcomer")
            admin.execute(b"drop role if exists someone_else")
            if why == "database that is gone":
                admin.execute(f"alter database elsewhere rename to {database}".encode())
    assert advice in str(refused.value)
    assert ("(create" in str(refused.value)) is why.endswith("is gone")


def test_each_address_of_a_host_that_refuses_is_named_on_one_line() -> None:
    """libpq says it in two lines for each, the second of which is a question."""
    refused = [
        f'connection to server at "{host}", port 5432 failed: Connection refused' for host in ("::1", "127.0.0.1")
    ]
    asked = "\n\tIs the server running on that host and accepting TCP/IP connections?"
    text = str(unavailable(URL, psycopg.OperationalError("\n".join(line + asked for line in refused))))
    assert (
        text
        == f"cannot connect to postgresql://app:***@db/shop: {'; '.join(refused)}; start the server, or check host and port in database_url"
    )
