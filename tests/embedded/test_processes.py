from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trueup.embedded import processes


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child of ours, working in `tmp_path`."""
    with subprocess.Popen(["sleep", "600"], cwd=tmp_path) as process:
        yield process
        process.kill()


def test_a_child_is_alive_and_known_to_be_ours(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.alive(sleeper.pid)
    assert sleeper.pid in processes.children(os.getpid())
    assert processes.command(sleeper.pid) == "sleep 600"


def test_a_killed_process_nobody_has_waited_for_is_not_alive(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert sleeper.pid in processes.table()
    assert not processes.alive(sleeper.pid)
    assert processes.works_in(sleeper.pid, tmp_path) is None
    assert processes.command(sleeper.pid) in ("", "<defunct>", "(sleep)")


def test_a_process_that_never_was_is_not_alive() -> None:
    assert not processes.alive(2**22 + 1)  # above the highest number a system gives
    assert processes.command(2**22 + 1) == ""


def test_where_a_process_works_is_told_truly_or_not_at_all(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert processes.works_in(sleeper.pid, tmp_path) in (True, None)
    assert processes.works_in(sleeper.pid, tmp_path.parent) in (False, None)
