from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.embedded.user import User
from tests.support.waiting import wait_until
from trueup.embedded import locks, logfile, processes
from trueup.embedded.cluster import Cluster
from trueup.embedded.embedded import EmbeddedPostgres
from trueup.embedded.home import Home

pytestmark = pytest.mark.slow

StartUser = Callable[[], User]


def answers(url: str) -> bool:
    try:
        with psycopg.connect(url) as connection:
            return connection.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def store_answer(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("create table stored as select 42 as answer")


def stored_answer(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select answer from stored").fetchone()
    assert row is not None
    return int(row[0])


def server_of(home: Path) -> Cluster:
    return Cluster(Home(home).cluster)


def pid_of_server(home: Path) -> int:
    pid = server_of(home).pid
    assert pid is not None
    return pid


def pid_of_keeper(home: Path) -> int:
    """The keeper that started the server."""
    return processes.table()[pid_of_server(home)].parent


def has_stopped(home: Path) -> bool:
    return not server_of(home).running and not Home(home).has_keeper()


def wait_for_log(home: Path, text: str) -> None:
    log = Home(home).keeper_log
    wait_until(lambda: text in log.read_text(), f"the keeper logs {text!r}", timeout=30)


def test_the_last_user_to_leave_stops_the_server(home: Path, start_user: StartUser) -> None:
    first, last = start_user(), start_user()
    assert first.url == last.url
    server = pid_of_server(home)
    first.leave()
    assert answers(last.url)
    assert pid_of_server(home) == server
    last.leave()
    wait_until(lambda: has_stopped(home), "the server has stopped")


def test_a_user_that_was_killed_counts_as_gone(home: Path, start_user: StartUser) -> None:
    killed, last = start_user(), start_user()
    assert killed.url == last.url
    last.leave()
    killed.kill()
    wait_until(lambda: has_stopped(home), "the server has stopped")


def test_ctrl_c_in_a_users_terminal_does_not_reach_the_server(
    home: Path, start_user: StartUser, shared: EmbeddedPostgres
) -> None:
    interrupted = start_user()
    assert answers(interrupted.url)
    server = pid_of_server(home)
    url = shared.acquire()
    os.killpg(interrupted.pid, signal.SIGINT)
    assert interrupted.wait() != 0
    assert answers(url)
    assert pid_of_server(home) == server


def test_what_one_run_stored_the_next_one_finds(home: Path, shared: EmbeddedPostgres) -> None:
    store_answer(shared.acquire())
    shared.release()
    wait_until(lambda: has_stopped(home), "the server has stopped")
    assert stored_answer(shared.acquire()) == 42


def test_one_who_arrives_while_the_server_is_being_stopped_gets_a_new_one(
    home: Path, shared: EmbeddedPostgres, other: EmbeddedPostgres
) -> None:
    shared.acquire()
    old = pid_of_server(home)
    os.kill(old, signal.SIGSTOP)  # so that the stop takes as long as we want it to
    shared.release()
    wait_for_log(home, "the last user has gone")

    with ThreadPoolExecutor(1) as pool:
        arrival = pool.submit(other.acquire)
        wait_until(lambda: locks.is_locked(Home(home).arrivals), "the newcomer is at the door")
        assert locks.is_locked(Home(home).users), "the fault did not land: the keeper is not stopping any more"
        os.kill(old, signal.SIGCONT)
        url = arrival.result(30)

    assert answers(url)
    assert pid_of_server(home) != old


def test_a_server_that_was_killed_is_started_again_for_its_users(home: Path, shared: EmbeddedPostgres) -> None:
    url = shared.acquire()
    store_answer(url)
    server_of(home).kill()
    wait_until(lambda: answers(url), "the server is back", timeout=30)
    assert stored_answer(url) == 42


def test_a_server_killed_together_with_its_keeper_recovers_with_the_next_user(
    home: Path, shared: EmbeddedPostgres, other: EmbeddedPostgres
) -> None:
    store_answer(shared.acquire())
    os.kill(pid_of_keeper(home), signal.SIGKILL)
    server_of(home).kill()
    assert stored_answer(other.acquire()) == 42


def test_a_server_whose_keeper_was_killed_is_adopted_by_the_next_user(
    home: Path, shared: EmbeddedPostgres, other: EmbeddedPostgres
) -> None:
    url = shared.acquire()
    server = pid_of_server(home)
    os.kill(pid_of_keeper(home), signal.SIGKILL)
    wait_until(lambda: not Home(home).has_keeper(), "the keeper is gone")
    assert answers(url)

    assert answers(other.acquire())
    assert pid_of_server(home) == server
    assert Home(home).has_keeper()

    shared.release()
    other.release()
    wait_until(lambda: has_stopped(home), "the adopted server has stopped")


def test_a_log_that_has_grown_long_is_set_aside_while_the_server_runs(home: Path, shared: EmbeddedPostgres) -> None:
    url = shared.acquire()
    log = server_of(home).log
    with log.open("ab") as much:
        much.write(b"x" * (logfile.ROTATE_AT + 1))
    wait_until(lambda: log.stat().st_size < logfile.ROTATE_AT, "the log was cut")
    with psycopg.connect(url) as connection, pytest.raises(psycopg.Error):
        connection.execute("select 1 / 0")
    wait_until(lambda: "division by zero" in log.read_text(), "the server writes to the same file")
    assert log.with_name("server.log.1").stat().st_size > logfile.ROTATE_AT


def test_a_keeper_that_is_terminated_takes_the_server_along(home: Path, shared: EmbeddedPostgres) -> None:
    shared.acquire()
    os.kill(pid_of_keeper(home), signal.SIGTERM)
    wait_until(lambda: has_stopped(home), "the server has stopped")
    assert "database system is shut down" in server_of(home).log.read_text()


def test_a_server_whose_first_user_gave_up_while_it_started_is_stopped(home: Path) -> None:
    Home(home).prepare()
    command = [sys.executable, "-m", "trueup.embedded.keeper", str(home), "--set=fsync=off"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as launcher:
        wait_until(lambda: [*home.glob("postgres/*/data/PG_VERSION")], "the keeper is making the data", timeout=30)
        launcher.kill()
    assert not server_of(home).running, "the launcher was killed too late"
    wait_for_log(home, "the last user has gone")
    wait_until(lambda: has_stopped(home), "the server has stopped")


def test_a_server_whose_data_were_deleted_before_anything_else_is_ended(home: Path, shared: EmbeddedPostgres) -> None:
    shared.acquire()
    server, keeper = pid_of_server(home), pid_of_keeper(home)
    shutil.rmtree(home / "postgres", ignore_errors=True)
    wait_for_log(home, "the data is gone")
    wait_until(lambda: not processes.alive(server), "the server is gone")
    wait_until(lambda: not processes.alive(keeper), "the keeper is gone")


def test_a_deleted_directory_ends_the_server_and_makes_room_for_a_new_one(
    home: Path, shared: EmbeddedPostgres, other: EmbeddedPostgres
) -> None:
    shared.acquire()
    server, keeper = pid_of_server(home), pid_of_keeper(home)
    shutil.rmtree(home, ignore_errors=True)
    url = other.acquire()
    wait_until(lambda: not processes.alive(server), "the old server is gone")
    wait_until(lambda: not processes.alive(keeper), "the old keeper is gone")
    assert answers(url)
