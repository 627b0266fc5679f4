from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.support.standby import Standby
from tests.support.waiting import wait_until
from trueup.embedded.cluster import Cluster


@pytest.fixture
def standby(cluster: Cluster, direct: psycopg.Connection, tmp_path: Path) -> Iterator[Standby]:
    with Standby(cluster, tmp_path / "standby") as standby:
        yield standby


def insert(connection: psycopg.Connection, number: int) -> None:
    connection.execute("insert into history values (%s)", [number])


def history(standby: Standby) -> list[int]:
    with psycopg.connect(standby.url()) as connection:
        return [row[0] for row in connection.execute("select id from history order by id")]


def received(standby: Standby, direct: psycopg.Connection) -> bool:
    """Whether the standby has all the primary has written, seen or unseen."""
    lag = "select sent_lsn = flush_lsn and sent_lsn = pg_current_wal_flush_lsn() from pg_stat_replication"
    return direct.execute(lag).fetchone() == (True,)


def test_a_standby_shows_what_the_primary_committed_and_refuses_writes(
    standby: Standby, direct: psycopg.Connection
) -> None:
    insert(direct, 1)
    standby.catch_up()
    assert history(standby) == [1]
    with psycopg.connect(standby.url()) as connection, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        insert(connection, 2)


def test_a_standby_with_paused_replay_shows_nothing_new_and_loses_nothing_promoted(
    standby: Standby, direct: psycopg.Connection
) -> None:
    standby.catch_up()
    standby.pause_replay()
    insert(direct, 1)
    wait_until(lambda: received(standby, direct), "the standby has received the row")
    assert history(standby) == []
    standby.promote()
    assert history(standby) == [1]


def test_resumed_replay_catches_up(standby: Standby, direct: psycopg.Connection) -> None:
    standby.catch_up()
    standby.pause_replay()
    insert(direct, 1)
    standby.resume_replay()
    standby.catch_up()
    assert history(standby) == [1]


def test_promoting_a_standby_that_stopped_receiving_loses_later_commits(
    standby: Standby, direct: psycopg.Connection
) -> None:
    insert(direct, 1)
    standby.catch_up()
    standby.stop_receiving()
    insert(direct, 2)
    standby.promote()
    with psycopg.connect(standby.url()) as connection:
        insert(connection, 3)
    assert history(standby) == [1, 3]


def test_a_standby_that_receives_again_catches_up(standby: Standby, direct: psycopg.Connection) -> None:
    standby.stop_receiving()
    insert(direct, 1)
    standby.resume_receiving()
    standby.catch_up()
    assert history(standby) == [1]


def test_the_pair_url_leads_to_the_server_that_takes_writes(standby: Standby, cluster: Cluster) -> None:
    def data_directory() -> Path:
        with psycopg.connect(standby.pair_url()) as connection:
            row = connection.execute("show data_directory").fetchone()
        assert row is not None
        return Path(row[0])

    assert data_directory() == cluster.data
    cluster.kill()
    standby.promote()
    assert data_directory() == standby.cluster.data
    cluster.start()


def test_commits_wait_for_a_synchronous_standby_and_no_longer_once_it_is_left(
    cluster: Cluster, direct: psycopg.Connection, tmp_path: Path
) -> None:
    waiting = "select 1 from pg_stat_activity where wait_event = 'SyncRep'"
    with (
        ThreadPoolExecutor(1) as executor,
        psycopg.connect(cluster.url(), autocommit=True) as writer,
        Standby(cluster, tmp_path / "standby", synchronous=True) as standby,
    ):
        standby.stop()
        commit = executor.submit(insert, writer, 1)
        wait_until(lambda: direct.execute(waiting).fetchone(), "the commit waits for the standby")
        assert not commit.done()
        standby.start()
        commit.result(timeout=10)
        standby.catch_up()  # the commit waited until the standby had it on disk, not until it can be read there
        assert history(standby) == [1]
    insert(direct, 2)


def test_a_standby_runs_with_the_settings_of_its_primary(tmp_path: Path) -> None:
    settings = {"max_connections": "123", "work_mem": "5MB", "fsync": "off"}
    with (
        Cluster(tmp_path / "primary", settings=settings) as primary,
        Standby(primary, tmp_path / "standby") as standby,
        psycopg.connect(standby.url()) as connection,
    ):
        shown = {name: connection.execute("select current_setting(%s)", [name]).fetchone() for name in settings}
    assert shown == {name: (value,) for name, value in settings.items()}


def test_the_primary_keeps_nothing_of_a_standby_that_was_left(
    cluster: Cluster, direct: psycopg.Connection, tmp_path: Path
) -> None:
    with Standby(cluster, tmp_path / "standby"):
        pass
    assert direct.execute("select slot_name from pg_replication_slots").fetchall() == []
