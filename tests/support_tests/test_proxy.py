from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.support.line import close
from tests.support.proxy import Proxy, address_of
from tests.support.waiting import wait_until
from trueup.embedded.cluster import Cluster

SILENCE = 0.3  # how long nothing must be heard before we believe that nothing will be


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy.before(cluster.url()) as proxy:
        yield proxy


@pytest.fixture
def url(proxy: Proxy, cluster: Cluster) -> str:
    return proxy.url(cluster.url())


@pytest.fixture
def client(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True, application_name="client") as connection:
        yield connection


@pytest.fixture
def in_background() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(1) as executor:
        yield executor.submit


def select_one(connection: psycopg.Connection) -> int:
    row = connection.execute("select 1").fetchone()
    assert row is not None
    return int(row[0])


def history(direct: psycopg.Connection) -> list[int]:
    return [row[0] for row in direct.execute("select id from history order by id")]


def server_sees_the_client(direct: psycopg.Connection) -> bool:
    sees = direct.execute("select 1 from pg_stat_activity where application_name = 'client'").fetchone()
    return sees is not None


def test_a_healthy_proxy_is_not_noticed(client: psycopg.Connection) -> None:
    assert select_one(client) == 1


def test_the_server_may_be_reached_over_tcp(proxy: Proxy, cluster: Cluster) -> None:
    with Proxy(("127.0.0.1", proxy.port)) as outer, psycopg.connect(outer.url(cluster.url())) as connection:
        assert select_one(connection) == 1


def test_a_closed_connection_is_closed_on_the_server_too(proxy: Proxy, url: str, direct: psycopg.Connection) -> None:
    psycopg.connect(url, application_name="client").close()
    wait_until(lambda: not server_sees_the_client(direct), "the server has closed its side")
    wait_until(lambda: proxy.connections == 0, "the proxy has forgotten the connection")


def test_a_server_that_is_down_looks_like_a_broken_connection() -> None:
    with Proxy(("127.0.0.1", 1)) as proxy, pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.url("postgresql:///postgres"))


def test_megabytes_pass_unchanged_in_both_directions(client: psycopg.Connection) -> None:
    text = "0123456789" * 500_000
    assert client.execute("select %s::text", [text]).fetchone() == (text,)


def test_a_left_proxy_leaves_no_thread_and_no_open_port(cluster: Cluster) -> None:
    with Proxy.before(cluster.url()) as proxy:
        connection = psycopg.connect(proxy.url(cluster.url()))
    connection.close()
    assert not any(thread.name.startswith("proxy-") for thread in threading.enumerate())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port))


def test_a_connection_string_with_two_servers_is_refused() -> None:
    with pytest.raises(ValueError, match="names several"):
        address_of("postgresql://one,two/postgres")


def test_cut_resets_open_connections_on_both_sides(
    proxy: Proxy, client: psycopg.Connection, direct: psycopg.Connection
) -> None:
    proxy.cut()
    with pytest.raises(psycopg.OperationalError):
        client.execute("select 1")
    wait_until(lambda: not server_sees_the_client(direct), "the server has noticed the cut")


def test_new_connections_are_refused_until_healed(proxy: Proxy, url: str) -> None:
    proxy.cut()
    proxy.cut()
    with pytest.raises(psycopg.OperationalError, match="Connection refused"):
        psycopg.connect(url)
    proxy.heal()
    with psycopg.connect(url) as connection:
        assert select_one(connection) == 1


def test_cut_interrupts_a_running_statement(
    proxy: Proxy, client: psycopg.Connection, in_background: Callable[..., Future[Any]], direct: psycopg.Connection
) -> None:
    running = in_background(client.execute, "select pg_sleep(60)")
    sleeping = "select 1 from pg_stat_activity where wait_event = 'PgSleep'"
    wait_until(lambda: direct.execute(sleeping).fetchone(), "the statement is running")
    proxy.cut()
    with pytest.raises(psycopg.OperationalError):
        running.result(timeout=5)
    direct.execute("select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'")


@pytest.mark.asyncio
async def test_async_clients_are_cut_too(proxy: Proxy, url: str) -> None:
    connections = [await psycopg.AsyncConnection.connect(url) for _ in range(10)]
    proxy.cut()
    results = await asyncio.gather(*(each.execute("select 1") for each in connections), return_exceptions=True)
    assert {type(result) for result in results} == {psycopg.OperationalError}
    assert proxy.connections == 0
    for each in connections:
        await each.close()


def test_a_statement_hangs_in_a_black_hole_and_ends_when_it_heals(
    proxy: Proxy, client: psycopg.Connection, in_background: Callable[..., Future[Any]]
) -> None:
    proxy.black_hole()
    answer = in_background(select_one, client)
    with pytest.raises(TimeoutError):
        answer.result(timeout=SILENCE)
    proxy.heal()
    assert answer.result(timeout=5) == 1


def test_an_answer_is_held_back_by_a_black_hole_that_opened_after_the_question(
    proxy: Proxy, client: psycopg.Connection, in_background: Callable[..., Future[Any]], direct: psycopg.Connection
) -> None:
    direct.execute("select pg_advisory_lock(1)")
    answer = in_background(client.execute, "select pg_advisory_xact_lock(1)")
    waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'client'"
    wait_until(lambda: direct.execute(waiting).fetchone(), "the server works on the question")
    proxy.black_hole()
    direct.execute("select pg_advisory_unlock(1)")
    with pytest.raises(TimeoutError):
        answer.result(timeout=SILENCE)
    proxy.heal()
    answer.result(timeout=5)


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
def test_the_server_does_not_learn_that_a_client_behind_a_black_hole_has_died(
    proxy: Proxy, client: psycopg.Connection, direct: psycopg.Connection, reset: bool
) -> None:
    proxy.black_hole()
    with socket.socket(fileno=os.dup(client.fileno())) as dying:
        client.close()
        close(dying, reset=reset)
    with pytest.raises(TimeoutError):
        wait_until(lambda: not server_sees_the_client(direct), "the server has noticed", timeout=SILENCE)
    proxy.heal()
    wait_until(lambda: not server_sees_the_client(direct), "the server has noticed")


def test_a_black_hole_accepts_connections_and_says_nothing(proxy: Proxy) -> None:
    proxy.black_hole()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=SILENCE) as newcomer:
        newcomer.sendall((8).to_bytes(4) + (80877103).to_bytes(4))
        with pytest.raises(TimeoutError):
            newcomer.recv(1)
        proxy.heal()
        newcomer.settimeout(5)
        assert newcomer.recv(1) in b"NS"


def test_a_delay_is_felt_once_in_each_direction(proxy: Proxy, client: psycopg.Connection) -> None:
    proxy.delay(0.1)
    started = time.monotonic()
    select_one(client)
    assert 0.2 <= time.monotonic() - started < 2


def test_a_delay_does_not_make_the_line_narrow(proxy: Proxy, client: psycopg.Connection) -> None:
    proxy.delay(0.1)
    started = time.monotonic()
    client.execute("select repeat('x', 4000000)")
    assert time.monotonic() - started < 2, "4 MB are 60 chunks: one after the other they would take 6 s"


@pytest.mark.parametrize(
    "statement", ["select repeat('x', 50000)", f"select length('{'x' * 50_000}')"], ids=["download", "upload"]
)
def test_a_throttled_line_takes_its_time(proxy: Proxy, client: psycopg.Connection, statement: str) -> None:
    proxy.throttle(bytes_per_second=100_000)
    started = time.monotonic()
    client.execute(statement.encode())
    assert 0.5 <= time.monotonic() - started < 3


def test_delay_and_throttle_add_up(proxy: Proxy, client: psycopg.Connection) -> None:
    proxy.delay(0.1)
    proxy.throttle(bytes_per_second=100_000)
    started = time.monotonic()
    client.execute("select repeat('x', 20000)")
    assert 0.4 <= time.monotonic() - started < 3


def test_healing_frees_what_a_long_delay_holds(
    proxy: Proxy, client: psycopg.Connection, in_background: Callable[..., Future[Any]]
) -> None:
    proxy.delay(3600)
    answer = in_background(select_one, client)
    with pytest.raises(TimeoutError):
        answer.result(timeout=SILENCE)
    proxy.heal()
    assert answer.result(timeout=5) == 1


def test_a_commit_whose_reply_was_lost_is_committed(
    proxy: Proxy, url: str, direct: psycopg.Connection, client: psycopg.Connection
) -> None:
    with pytest.raises(psycopg.OperationalError), psycopg.connect(url) as connection:
        connection.execute("insert into history values (1)")
        loss = proxy.drop_next_reply(to=b"COMMIT")
    loss.wait()
    assert history(direct) == [1]
    assert select_one(client) == 1, "other connections are not touched"


def test_the_connection_is_reset_only_after_the_server_has_finished(
    proxy: Proxy, client: psycopg.Connection, direct: psycopg.Connection
) -> None:
    loss = proxy.drop_next_reply(to=b"history")
    with pytest.raises(psycopg.OperationalError):
        client.execute(
            "do $$ begin raise notice 'begun'; perform pg_sleep(0.2); insert into history values (1); end $$"
        )
    loss.wait()
    assert history(direct) == [1]


def test_a_request_is_recognised_by_its_parameters(
    proxy: Proxy, client: psycopg.Connection, direct: psycopg.Connection
) -> None:
    loss = proxy.drop_next_reply(to=b"a marked job")
    insert = "insert into history select %s where %s <> ''"
    client.execute(insert, [1, "another job"])
    with pytest.raises(psycopg.OperationalError):
        client.execute(insert, [2, "a marked job"])
    loss.wait()
    assert history(direct) == [1, 2]


def test_a_reply_is_lost_in_a_pipeline(proxy: Proxy, url: str, direct: psycopg.Connection) -> None:
    loss = proxy.drop_next_reply(to=b"COMMIT")
    with pytest.raises(psycopg.OperationalError), psycopg.connect(url) as connection, connection.pipeline():
        for number in range(3):
            with connection.transaction():
                connection.execute("insert into history values (%s)", [number])
    loss.wait()
    assert 0 in history(direct)


def test_a_reply_is_lost_after_a_bulk_copy_on_the_same_connection(
    proxy: Proxy, client: psycopg.Connection, direct: psycopg.Connection
) -> None:
    with client.cursor().copy("copy history from stdin") as copy:
        copy.write_row([1])
    loss = proxy.drop_next_reply(to=b"history")
    with pytest.raises(psycopg.OperationalError):
        client.execute("insert into history values (%s)", [2])
    loss.wait()
    assert history(direct) == [1, 2]


def test_a_reply_is_lost_on_a_connection_that_asked_for_encryption_first(
    proxy: Proxy, url: str, direct: psycopg.Connection
) -> None:
    with psycopg.connect(url, sslmode="prefer", autocommit=True) as connection:
        loss = proxy.drop_next_reply(to=b"history")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("insert into history values (1)")
        loss.wait()
    assert history(direct) == [1]


def test_a_loss_without_a_request_strikes_whatever_comes_next(proxy: Proxy, client: psycopg.Connection) -> None:
    loss = proxy.drop_next_reply()
    with pytest.raises(psycopg.OperationalError):
        client.execute("select 1")
    loss.wait()


def test_healing_disarms_a_loss(proxy: Proxy, client: psycopg.Connection) -> None:
    loss = proxy.drop_next_reply(to=b"select")
    proxy.heal()
    assert select_one(client) == 1
    assert not loss.happened


def test_waiting_for_a_loss_that_did_not_happen_fails(proxy: Proxy) -> None:
    with pytest.raises(TimeoutError, match="no reply to b'COMMIT' was lost"):
        proxy.drop_next_reply(to=b"COMMIT").wait(timeout=0.01)
