from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from trueup.embedded import locks

HOLD = """
import sys
from pathlib import Path
from trueup.embedded import locks
held = locks.try_lock(Path(sys.argv[1]), shared=sys.argv[2] == "shared")
print("held", flush=True)
sys.stdin.read()
"""

FORK = """
import os, sys
from pathlib import Path
from trueup.embedded import locks
path = Path(sys.argv[1])
held = locks.try_lock(path)
child = os.fork()
if child == 0:
    held.release()
    os._exit(0)
os.waitpid(child, 0)
assert locks.is_locked(path), "the child's release reached the parent's lock"
held.release()
assert not locks.is_locked(path)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "the.lock"


def start_holder(path: Path, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path), mode]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_lock_is_free_again_when_its_holder_was_killed(path: Path, mode: str) -> None:
    with start_holder(path, mode) as holder:
        assert locks.try_lock(path) is None
        holder.kill()
        holder.wait()
    locks.lock(path, within=5).release()


def test_many_may_share_a_lock_and_keep_an_exclusive_one_out(path: Path) -> None:
    with locks.lock(path, shared=True, within=0), locks.lock(path, shared=True, within=0):
        assert locks.try_lock(path) is None
        assert not locks.is_locked(path)
    with locks.lock(path, within=0):
        assert locks.try_lock(path, shared=True) is None
        assert locks.is_locked(path)


def test_waiting_in_vain_ends_with_an_error_that_names_the_file(path: Path) -> None:
    with locks.lock(path, within=0), pytest.raises(TimeoutError, match=r"the\.lock is still locked"):
        locks.lock(path, within=0.05)


def test_a_forked_child_that_releases_leaves_its_parents_lock_alone(path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, str(path)], check=True, timeout=30)


def test_a_lock_on_a_file_that_was_replaced_is_known_to_be_worthless(path: Path) -> None:
    with locks.lock(path, within=0) as old:
        assert old.in_place()
        path.unlink()
        assert not old.in_place()
        with locks.lock(path, within=0) as new:
            assert new.in_place()
            assert not old.in_place()


def test_the_processes_that_share_a_lock_are_known_where_the_system_tells(path: Path) -> None:
    assert locks.sharers(path) == frozenset()
    with start_holder(path, "shared") as holder, locks.lock(path, shared=True, within=0):
        expected = frozenset({os.getpid(), holder.pid}) if Path("/proc/locks").exists() else None
        assert locks.sharers(path) == expected
        holder.kill()
        holder.wait()
        wait_until(
            lambda: expected is None or locks.sharers(path) == frozenset({os.getpid()}), "the killed one is gone"
        )
