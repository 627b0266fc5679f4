from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from tests.embedded.test_keeper import answers, has_stopped, pid_of_server, wait_for_log
from tests.embedded.user import FAST, User
from tests.support.matrix import count
from tests.support.waiting import wait_until
from trueup.embedded import binaries, locks, nonroot
from trueup.embedded.embedded import EmbeddedPostgres
from trueup.embedded.home import Home
from trueup.embedded.keeper import POLL
from trueup.errors import ConfigError, DatabaseUnavailable, EmbeddedUnavailable

pytestmark = pytest.mark.slow

KEEP = """
import sys
from pathlib import Path
from trueup.embedded.embedded import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1]), settings={"fsync": "off"}).keep())
"""

FORK = """
import os, sys
from pathlib import Path
from trueup.embedded import locks
from trueup.embedded.embedded import EmbeddedPostgres
from trueup.embedded.home import Home
home = Path(sys.argv[1])
embedded = EmbeddedPostgres(home, settings={"fsync": "off"})
embedded.acquire()
child = os.fork()
if child == 0:
    embedded.release()
    os._exit(0)
os.waitpid(child, 0)
assert locks.try_lock(Home(home).users) is None, "the child released its parent's hold"
"""


def test_processes_starting_at_once_get_one_server(home: Path, start_user: Callable[[], User]) -> None:
    users = [start_user() for _ in range(count(5, proof=10))]
    assert len({user.url for user in users}) == 1
    assert Home(home).keeper_log.read_text().count("keeping PostgreSQL") == 1
    assert answers(users[0].url)
    for user in users:
        user.leave()
    wait_until(lambda: has_stopped(home), "the server has stopped")


def test_one_who_comes_and_goes_at_any_moment_always_has_a_server(home: Path, shared: EmbeddedPostgres) -> None:
    seed = random.randrange(2**32)
    moments = random.Random(seed)
    for visit in range(count(4, proof=10)):
        with shared as url:
            assert answers(url), f"no server on visit {visit}, seed {seed}"
            stopping = f"stopping PostgreSQL {pid_of_server(home)}"
        if visit % 2:
            time.sleep(moments.uniform(0, 2 * POLL))  # comes back before, during or after the stop
        else:
            wait_for_log(home, stopping)


def test_the_directory_is_private_and_invisible_to_git(home: Path, shared: EmbeddedPostgres) -> None:
    shared.acquire()
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / ".gitignore").read_text() == "*\n"


def test_acquiring_again_brings_a_stopped_server_back(home: Path, shared: EmbeddedPostgres) -> None:
    url = shared.acquire()
    EmbeddedPostgres(home).stop()
    assert not answers(url)
    assert shared.acquire() == url
    assert answers(url)


def test_a_kept_server_survives_its_users_until_it_is_stopped(home: Path, shared: EmbeddedPostgres) -> None:
    url = shared.keep()
    server = pid_of_server(home)
    assert shared.status().kept
    with EmbeddedPostgres(home):
        pass
    # The keeper has looked at least once since, found nobody, and let it be.
    with locks.lock(Home(home).users, within=10):
        pass
    assert answers(url)
    assert pid_of_server(home) == server

    shared.stop()

    assert has_stopped(home)
    assert not shared.status().kept


def test_a_server_no_longer_kept_stops_with_its_last_user(home: Path, shared: EmbeddedPostgres) -> None:
    shared.keep()
    shared.unkeep()
    wait_until(lambda: has_stopped(home), "the server has stopped")


def test_a_server_is_stopped_on_request_even_if_others_use_it(home: Path, start_user: Callable[[], User]) -> None:
    user = start_user()
    with psycopg.connect(user.url) as connection:
        EmbeddedPostgres(home).stop()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    assert has_stopped(home)


def test_stopping_what_never_ran_leaves_no_trace(home: Path) -> None:
    EmbeddedPostgres(home).stop()
    assert not home.exists()


def test_status_tells_without_starting_anything(home: Path, shared: EmbeddedPostgres) -> None:
    before = shared.status()
    assert (before.running, before.kept, before.url, before.version, before.pid) == (False, False, None, None, None)
    assert not home.exists()

    url = shared.acquire()

    status = shared.status()
    assert (status.running, status.kept, status.url) == (True, False, url)
    assert status.directory == home
    assert status.pid == pid_of_server(home)
    assert status.version is not None
    assert status.version.startswith(f"{max(binaries.INSTALLATIONS)}.")
    assert status.users in (None, {os.getpid()})


def test_who_captures_a_short_lived_users_output_is_not_held_up_by_the_server(home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KEEP, str(home)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert answers(done.stdout.strip())


def test_a_forked_child_that_releases_does_not_end_its_parents_hold(home: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, str(home)], check=True, timeout=60)


def test_a_server_that_does_not_start_is_explained_to_its_user(home: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match=r'(?s)did not start.*shared_buffers": "plenty"'):
        EmbeddedPostgres(home, settings={**FAST, "shared_buffers": "plenty"}).acquire()
    assert locks.try_lock(Home(home).users) is not None, "the failed one is still a user"


def test_a_missing_wheel_is_said_before_anything_is_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedUnavailable, match="TRUEUP_DATABASE_URL"):
        EmbeddedPostgres(home).acquire()
    assert not home.exists()


def test_a_directory_we_may_not_use_is_a_configuration_error(place: Path) -> None:
    (place / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made a private directory"):
        EmbeddedPostgres(place / "file" / ".trueup").acquire()


def test_a_project_deep_down_works(place: Path) -> None:
    embedded = EmbeddedPostgres(place / ("deep" * 30) / ".trueup", settings=FAST, linger=timedelta(0))
    with embedded as url:
        assert answers(url)
    embedded.stop()


def test_a_machine_without_user_namespaces_works(
    home: Path, place: Path, place_for_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For root this means that PostgreSQL runs as nobody, who has to reach the programs: not in everybody's checkout.
    installed = binaries.locate().parents[1]
    packages = place_for_programs / "packages"
    (packages / installed.name).mkdir(parents=True)
    (packages / installed.name / "__init__.py").touch()
    for name in (binaries.locate().parent.relative_to(installed.parent), f"{installed.name}.libs"):
        shutil.copytree(installed.parent / name, packages / name)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PATH", str(place))
    nonroot.way.cache_clear()
    try:
        assert binaries.locate().is_relative_to(packages)
        embedded = EmbeddedPostgres(home, settings=FAST)
        with embedded as url:
            assert answers(url)
            assert (Home(home).cluster / "data").stat().st_uid == (
                nonroot.NOBODY if os.geteuid() == 0 else os.geteuid()
            )
        embedded.stop()
    finally:
        nonroot.way.cache_clear()
