from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.embedded.test_postmaster import write_pid_file
from tests.support.waiting import wait_until
from trueup.embedded import binaries, postmaster, processes, sockets
from trueup.embedded.cluster import Cluster
from trueup.errors import DatabaseUnavailable

MakeCluster = Callable[..., Cluster]


def ask(cluster: Cluster, query: str) -> object:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


def do(cluster: Cluster, *statements: str) -> None:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@contextmanager
def busy_backend(cluster: Cluster) -> Iterator[int]:
    """A server process in the middle of a long calculation, which does not look up when its postmaster dies."""
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        pid = connection.info.backend_pid

        def calculate() -> None:
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b")

        with ThreadPoolExecutor(1) as pool:
            calculation = pool.submit(calculate)
            active = f"select state = 'active' from pg_stat_activity where pid = {pid}"
            wait_until(lambda: ask(cluster, active), "the backend is at work")
            try:
                yield pid
                wait_until(lambda: not processes.alive(pid), "the backend is gone")
            finally:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # after a failure it would calculate for hours
            calculation.result(30)


@pytest.mark.parametrize("major", sorted(binaries.INSTALLATIONS))
def test_a_new_cluster_serves_the_major_version_asked_for(make_cluster: MakeCluster, major: int) -> None:
    cluster = make_cluster(major=major)
    cluster.start()
    assert ask(cluster, "select current_setting('server_version_num')::int / 10000") == major


def test_starting_a_running_server_leaves_it_alone(cluster: Cluster) -> None:
    pid = cluster.pid
    cluster.start()
    Cluster(cluster.directory).start()
    assert cluster.pid == pid


def test_a_cluster_started_by_several_at_once_gets_one_server(make_cluster: MakeCluster) -> None:
    clusters = [make_cluster() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(Cluster.start, clusters))
    assert len({cluster.pid for cluster in clusters}) == 1


def test_another_process_may_stop_what_we_started(cluster: Cluster) -> None:
    elsewhere = Cluster(cluster.directory)
    assert elsewhere.running
    elsewhere.stop()
    assert not cluster.running
    assert cluster.pid is None
    with pytest.raises(psycopg.OperationalError):
        ask(cluster, "select 1")


def test_stopping_a_stopped_server_is_harmless(cluster: Cluster) -> None:
    cluster.stop()
    cluster.stop("immediate")
    cluster.kill()


def test_a_smart_stop_waits_for_clients_and_a_fast_one_does_not(cluster: Cluster) -> None:
    with closing(psycopg.connect(cluster.url())) as client:
        with pytest.raises(TimeoutError):
            cluster.stop("smart", within=0.1)
        client.execute("select 1")
        cluster.stop("fast")
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
    assert not cluster.running


@pytest.mark.parametrize("end", [Cluster.kill, lambda cluster: cluster.stop("immediate")], ids=["killed", "immediate"])
def test_what_was_committed_is_there_after_a_crash(cluster: Cluster, end: Callable[[Cluster], None]) -> None:
    do(cluster, "drop table if exists kept", "create table kept (id int)")
    with closing(psycopg.connect(cluster.url())) as connection:
        connection.execute("insert into kept select generate_series(1, 1000)")
        connection.commit()
        connection.execute("insert into kept values (-1)")
        end(cluster)
    assert not cluster.running
    cluster.start()
    assert ask(cluster, "select array[count(*), min(id)] from kept") == [1000, 1]


def test_a_killed_server_leaves_no_process_behind(cluster: Cluster) -> None:
    pid = cluster.pid
    assert pid is not None
    family = [pid, *processes.children(pid)]
    assert len(family) > 3
    cluster.kill()
    assert not [member for member in family if processes.alive(member)]


def test_a_start_right_after_the_postmaster_was_killed_gives_a_working_server(cluster: Cluster) -> None:
    for _ in range(3):
        pid = cluster.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        cluster.start()
        assert cluster.pid != pid
        assert ask(cluster, "select 1") == 1


def test_an_unreaped_killed_postmaster_does_not_keep_the_next_from_starting(cluster: Cluster) -> None:
    zombie = cluster.pid
    assert zombie is not None
    os.kill(zombie, signal.SIGKILL)
    wait_until(lambda: not cluster.running, "the postmaster is dead")
    assert zombie in processes.table()
    elsewhere = Cluster(cluster.directory)
    elsewhere.start()
    assert zombie in processes.table(), "it was waited for, so this test proved nothing"
    assert ask(elsewhere, "select 1") == 1
    elsewhere.stop()


def test_processes_that_outlived_their_postmaster_do_not_keep_the_next_from_starting(cluster: Cluster) -> None:
    with busy_backend(cluster) as orphan:
        pid = cluster.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not cluster.running, "the postmaster is dead")
        wait_until(lambda: postmaster.orphans(cluster.data) == [orphan], "the others have noticed that it is dead")
        cluster.start()
        assert not processes.alive(orphan)
    assert ask(cluster, "select 1") == 1


def test_no_server_is_started_beside_processes_that_cannot_be_found(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postmaster, "orphans", lambda data: [])
    with busy_backend(cluster) as orphan:
        pid = cluster.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not cluster.running, "the postmaster is dead")
        starting = threading.Thread(target=cluster.start)
        starting.start()
        seen = cluster.log.stat().st_size
        with pytest.raises(TimeoutError):
            wait_until(lambda: cluster.log.stat().st_size > seen, "a second server says anything", timeout=1)
        os.kill(orphan, signal.SIGKILL)
        starting.join(60)
    assert ask(cluster, "select 1") == 1


def test_a_stale_pid_file_whose_number_another_process_has_does_not_fool_us(cluster: Cluster) -> None:
    cluster.kill()
    with subprocess.Popen(["sleep", "600"]) as bystander:
        write_pid_file(cluster.data, bystander.pid)
        socket_lock = cluster.directory / f".s.PGSQL.{sockets.UNIX_PORT}.lock"
        socket_lock.write_text(postmaster.pid_file(cluster.data).read_text())
        assert not cluster.running
        cluster.stop("immediate")
        assert bystander.poll() is None
        cluster.start()
        assert ask(cluster, "select 1") == 1
        assert bystander.poll() is None
        bystander.kill()


def test_settings_reach_the_server_and_the_rest_can_be_altered(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(settings={"work_mem": "7MB"})
    cluster.start()
    do(cluster, "alter system set work_mem = '9MB'", "alter system set max_wal_size = '99MB'")
    cluster.restart()
    assert ask(cluster, "show work_mem") == "7MB"
    assert ask(cluster, "show max_wal_size") == "99MB"
    assert ask(cluster, "show fsync") == "off"


def test_data_is_safe_by_default(place: Path) -> None:
    with Cluster(place / "default") as cluster:
        assert ask(cluster, "show fsync") == "on"
        assert ask(cluster, "show full_page_writes") == "on"
        assert ask(cluster, "show listen_addresses") == ""


def test_a_server_that_does_not_start_is_explained_by_its_log(cluster: Cluster) -> None:
    cluster.stop()
    broken = Cluster(cluster.directory, settings={"shared_buffers": "plenty"})
    with pytest.raises(DatabaseUnavailable, match=r'(?s)ended with status.*shared_buffers": "plenty"'):
        broken.start()
    assert not broken.running


def test_nobody_else_can_reach_the_socket(cluster: Cluster) -> None:
    server = postmaster.running(cluster.data)
    assert server is not None
    assert server.socket_directory.stat().st_mode & 0o777 == 0o700


def test_a_directory_with_a_very_long_name_works_and_its_short_one_is_removed(
    make_cluster: MakeCluster, place: Path
) -> None:
    cluster = make_cluster(place / ("long" * 40))
    cluster.start()
    assert ask(cluster, "select 1") == 1
    server = postmaster.running(cluster.data)
    assert server is not None
    assert server.socket_directory != cluster.directory
    assert server.socket_directory.stat().st_mode & 0o777 == 0o700
    cluster.stop()
    assert not server.socket_directory.exists()


def test_two_processes_that_disagree_about_the_temporary_directory_meet_all_the_same(
    make_cluster: MakeCluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(place / ("long" * 40))
    cluster.start()
    elsewhere = place / "tmp"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    assert sockets.socket_directory(cluster.directory).parent == elsewhere
    assert ask(Cluster(cluster.directory), "select 1") == 1


@pytest.mark.parametrize("name", ["my project + co @home", 'it\'s 100% "odd", & größer?#=x'])
def test_a_directory_may_have_any_name(make_cluster: MakeCluster, place: Path, name: str) -> None:
    cluster = make_cluster(place / name)
    cluster.start()
    assert ask(cluster, "select 1") == 1
