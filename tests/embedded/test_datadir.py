from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.support.waiting import wait_until
from trueup.embedded import datadir
from trueup.embedded.cluster import Cluster
from trueup.errors import ConfigError, EmbeddedUnavailable

CREATE = """
import sys
from pathlib import Path
from trueup.embedded.cluster import Cluster
Cluster(Path(sys.argv[1])).create()
"""


def unfinished(cluster: Cluster) -> list[Path]:
    return list(cluster.directory.glob(datadir.UNFINISHED + "*"))


def test_a_data_directory_whose_making_was_killed_is_made_anew(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    with subprocess.Popen([sys.executable, "-c", CREATE, cluster.directory], start_new_session=True) as maker:
        # initdb writes this file early, and a hundred others after it.
        wait_until(lambda: [*cluster.directory.glob("*/data/PG_VERSION")], "initdb is at work", timeout=30)
        os.killpg(maker.pid, signal.SIGKILL)
    assert unfinished(cluster), "it was finished before it could be killed"
    assert not cluster.data.exists()

    cluster.start()

    assert not unfinished(cluster)
    with psycopg.connect(cluster.url()) as connection:
        assert connection.execute("select count(*) from pg_class").fetchone() != (0,)


def test_making_it_twice_changes_nothing(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.create()
    before = cluster.data.stat().st_ino
    cluster.create()
    assert cluster.data.stat().st_ino == before


def test_it_stays_on_the_major_version_it_was_made_with(make_cluster: Callable[..., Cluster]) -> None:
    make_cluster(major=16).create()

    again = make_cluster()
    again.start()
    with psycopg.connect(again.url()) as connection:
        assert connection.info.server_version // 10000 == 16

    with pytest.raises(ConfigError, match="was made by PostgreSQL 16 and cannot be used by 18"):
        make_cluster(major=18).create()


def test_a_directory_with_something_else_in_it_is_refused_and_left_alone(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.data.mkdir(parents=True)
    (cluster.data / "thesis.txt").write_text("ten years of work")
    with pytest.raises(ConfigError, match="is not a PostgreSQL data directory"):
        cluster.create()
    assert (cluster.data / "thesis.txt").read_text() == "ten years of work"


def test_a_failing_initdb_is_told_and_leaves_nothing_behind(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(datadir.DEFAULTS, "no_such_setting", "1")
    cluster = make_cluster()
    with pytest.raises(EmbeddedUnavailable, match=r"(?s)no_such_setting.*TRUEUP_DATABASE_URL"):
        cluster.create()
    assert not unfinished(cluster)
    assert not cluster.data.exists()


def test_text_is_utf_8_and_ordered_by_code_point_on_every_machine(cluster: Cluster) -> None:
    with psycopg.connect(cluster.url()) as connection:
        assert connection.execute("show server_encoding").fetchone() == ("UTF8",)
        rows = connection.execute("select w from unnest(array['a', 'B', 'ä', 'Z']) as w order by w").fetchall()
    assert [word for (word,) in rows] == ["B", "Z", "a", "ä"]


def test_variables_meant_for_another_postgresql_do_not_reach_ours(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nonexistent")
    monkeypatch.setenv("PGOPTIONS", "--no-such-option")
    monkeypatch.setenv("LC_ALL", "xx_XX.nonsense")
    assert {name for name in datadir.environment() if name.startswith("PG")} == set()
    make_cluster().start()
