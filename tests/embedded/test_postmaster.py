from __future__ import annotations

import os
from pathlib import Path

import pytest

from trueup.embedded import postmaster, processes, sockets
from trueup.embedded.cluster import Cluster


def write_pid_file(data: Path, pid: int) -> None:
    """As a server with that number would leave it behind when killed."""
    lines = [pid, data, 1700000000, sockets.UNIX_PORT, data.parent, "", "  2147835        13", "ready   "]
    postmaster.pid_file(data).write_text("".join(f"{line}\n" for line in lines))


def test_a_running_server_is_known_with_its_address(cluster: Cluster) -> None:
    assert cluster.pid is not None
    expected = postmaster.Postmaster(cluster.pid, sockets.UNIX_PORT, cluster.directory, "ready")
    assert postmaster.running(cluster.data) == expected


def test_a_file_that_names_another_process_is_not_believed(tmp_path: Path) -> None:
    write_pid_file(tmp_path, os.getpid())
    assert postmaster.read(tmp_path) is not None
    assert postmaster.running(tmp_path) is None


def test_a_file_that_names_the_server_of_another_directory_is_not_believed(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.pid is not None
    write_pid_file(tmp_path, cluster.pid)
    assert postmaster.running(tmp_path) is None


@pytest.mark.parametrize("content", ["", "123\n", "123\n/somewhere\n17000", "not a number\na\nb\n5432\nd\n"])
def test_a_file_that_is_still_being_written_says_nothing(tmp_path: Path, content: str) -> None:
    postmaster.pid_file(tmp_path).write_text(content)
    assert postmaster.read(tmp_path) is None


def test_a_server_we_may_not_inspect_is_known_by_its_command_line(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "works_in", lambda pid, directory: None)
    assert cluster.pid is not None
    assert postmaster.serves(cluster.pid, cluster.data)
    assert not postmaster.serves(cluster.pid, cluster.data / "base")
    assert not postmaster.serves(cluster.pid, cluster.data.with_name("dat"))
    assert not postmaster.serves(os.getpid(), cluster.data)


def test_the_processes_of_a_running_server_are_not_left_over(cluster: Cluster) -> None:
    assert cluster.pid is not None
    names = [name for pid in processes.children(cluster.pid) if (name := processes.command(pid))]  # "" has just ended
    assert names
    assert all(name.startswith(f"postgres: {postmaster.cluster_name(cluster.data)}: ") for name in names), names
    assert postmaster.orphans(cluster.data) == []
