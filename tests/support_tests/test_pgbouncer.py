from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from tests.support import pgbouncer as pgbouncer_module
from tests.support.pgbouncer import PgBouncer
from tests.support.waiting import wait_until
from trueup.embedded.cluster import Cluster

POOL_SIZE = 2


@pytest.fixture
def pgbouncer(cluster: Cluster) -> Iterator[PgBouncer]:
    with PgBouncer(cluster.url(), default_pool_size=POOL_SIZE) as pgbouncer:
        yield pgbouncer


@pytest.fixture
def clients(pgbouncer: PgBouncer) -> Iterator[list[psycopg.Connection]]:
    clients = [psycopg.connect(pgbouncer.url()) for _ in range(POOL_SIZE + 1)]
    yield clients
    for client in clients:
        client.close()


def works(url: str) -> bool:
    try:
        with psycopg.connect(url) as client:
            return client.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def test_a_transaction_waits_while_the_pool_is_used_up(clients: list[psycopg.Connection]) -> None:
    *holders, latecomer = clients
    for holder in holders:
        holder.execute("select 1")
    with ThreadPoolExecutor(1) as executor:
        answer = executor.submit(latecomer.execute, "select 1")
        with pytest.raises(TimeoutError):
            answer.result(timeout=0.3)
        holders[0].commit()
        assert answer.result(timeout=5).fetchone() == (1,)


def test_a_session_is_shared_by_clients_one_transaction_at_a_time(clients: list[psycopg.Connection]) -> None:
    first, second, _ = clients
    for client in (first, second):
        assert client.execute("select pg_try_advisory_lock(1)").fetchone() == (True,)
        client.commit()
    first.execute("select pg_advisory_unlock_all()")
    first.commit()


def test_the_url_leads_to_the_named_database(pgbouncer: PgBouncer, direct: psycopg.Connection) -> None:
    direct.execute("create database elsewhere")
    with psycopg.connect(pgbouncer.url("elsewhere")) as client:
        assert client.execute("select current_database()").fetchone() == ("elsewhere",)
    with psycopg.connect(pgbouncer.url("pgbouncer"), autocommit=True) as console:
        console.execute("kill elsewhere")
    direct.execute("drop database elsewhere with (force)")


def test_a_startup_parameter_that_pgbouncer_does_not_know_is_refused(pgbouncer: PgBouncer) -> None:
    with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter: options"):
        psycopg.connect(pgbouncer.url(), options="-c search_path=elsewhere")


def test_a_restart_breaks_the_clients_and_keeps_the_url(
    pgbouncer: PgBouncer, clients: list[psycopg.Connection]
) -> None:
    url = pgbouncer.url()
    pgbouncer.restart()
    for client in clients:
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
    assert pgbouncer.url() == url
    assert works(url)


def test_a_stopped_pgbouncer_refuses_connections(pgbouncer: PgBouncer) -> None:
    pgbouncer.stop()
    pgbouncer.stop()
    with pytest.raises(psycopg.OperationalError, match="Connection refused"):
        psycopg.connect(pgbouncer.url())


def test_clients_are_served_soon_after_the_server_is_back(pgbouncer: PgBouncer, cluster: Cluster) -> None:
    with psycopg.connect(pgbouncer.url("pgbouncer"), autocommit=True) as console, ThreadPoolExecutor(1) as executor:

        def clients_waiting() -> int:
            pools = console.cursor(row_factory=dict_row).execute("show pools")
            return sum(pool["cl_waiting"] for pool in pools)

        assert works(pgbouncer.url())
        cluster.stop("immediate")
        answer = executor.submit(works, pgbouncer.url())
        wait_until(clients_waiting, "a client waits for the server")
        cluster.start()
        assert answer.result(timeout=5)


@pytest.fixture
def guarded_url(direct: psycopg.Connection) -> Iterator[str]:
    """A URL with a password that the server insists on."""
    password = """it's "odd\\" """
    direct.execute(sql.SQL("create role guarded login password {}").format(password))
    hba = direct.execute("show hba_file").fetchone()
    assert hba is not None
    rules = Path(hba[0])
    trusting = rules.read_text()
    rules.write_text(f"local all guarded scram-sha-256\n{trusting}")
    direct.execute("select pg_reload_conf()")
    yield psycopg.conninfo.make_conninfo(direct.info.dsn, user="guarded", password=password)
    rules.write_text(trusting)
    direct.execute("select pg_reload_conf()")
    direct.execute("drop role guarded")


def test_pgbouncer_knows_the_password_that_its_clients_do_not(guarded_url: str) -> None:
    def asks_for_a_password() -> bool:
        try:
            psycopg.connect(guarded_url, password="wrong").close()
        except psycopg.OperationalError as error:
            return "password authentication failed" in str(error)
        return False

    wait_until(asks_for_a_password, "the server has read its new rules")
    with PgBouncer(guarded_url) as pgbouncer, psycopg.connect(pgbouncer.url()) as client:
        assert client.execute("select current_user").fetchone() == ("guarded",)


def test_what_pgbouncer_said_is_told_when_it_does_not_start(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pgbouncer_module.CONFIG.replace("pool_mode =", "no_such_setting =")
    monkeypatch.setattr(pgbouncer_module, "CONFIG", config)
    with pytest.raises(RuntimeError, match="no_such_setting"), PgBouncer(cluster.url()):
        pass
