"""One directory used from several PID namespaces, as by two containers that mount it, and other ways to lose sight of a server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.embedded.test_keeper import answers, has_stopped, pid_of_server, server_of, store_answer, stored_answer
from tests.embedded.user import User
from tests.support.waiting import wait_until
from trueup.embedded import processes, sockets
from trueup.embedded.embedded import ANSWER_WITHIN, EmbeddedPostgres
from trueup.embedded.home import Home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc")
ROOT = Path(__file__).parents[2]


@contextmanager
def contained(home: Path) -> Iterator[User]:
    """A user of the server that sees only its own processes. They all end with it."""
    user = User(home, inside=CONTAINER)
    try:
        yield user
    finally:
        user.kill()


def postmasters(home: Path) -> list[int]:
    """Those of this data directory, in whatever namespace: we see them all."""
    data = Home(home).cluster / "data"
    found = [pid for pid in processes.table() if f"/postgres -D {data} " in processes.command(pid) + " "]
    return [pid for pid in found if not processes.command(pid).startswith("unshare")]


def keepers(home: Path) -> list[int]:
    return [pid for pid in processes.table() if f"trueup.embedded.keeper {home} " in processes.command(pid) + " "]


def stop_from_elsewhere(home: Path) -> None:
    script = "import sys; from pathlib import Path; from trueup.embedded.embedded import EmbeddedPostgres; "
    script += "EmbeddedPostgres(Path(sys.argv[1])).stop()"
    subprocess.run([*CONTAINER, sys.executable, "-c", script, str(home)], check=True, timeout=120)


def test_a_second_container_joins_a_server_that_it_cannot_see_and_can_stop_it(
    home: Path, shared: EmbeddedPostgres
) -> None:
    url = shared.acquire()
    store_answer(url)
    server = pid_of_server(home)
    with contained(home) as other:
        assert other.url == url
        assert postmasters(home) == [server]
        assert stored_answer(url) == 42
    assert answers(url), "who leaves does not take the server along"
    stop_from_elsewhere(home)
    assert has_stopped(home)
    assert "database system is shut down" in server_of(home).log.read_text()


def test_a_server_in_another_container_without_its_keeper_is_joined_not_doubled(home: Path) -> None:
    with contained(home) as first:
        store_answer(first.url)
        (server,) = postmasters(home)
        os.kill(first.inner_pid, signal.SIGSTOP)  # or it would replace the keeper itself
        for keeper in keepers(home):
            os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: not Home(home).has_keeper(), "the keeper is gone")
        with contained(home) as second:
            assert second.url == first.url
            assert postmasters(home) == [server]
            assert stored_answer(second.url) == 42
            assert Home(home).has_keeper()

            first.kill()  # and with its container the server
            wait_until(lambda: postmasters(home) != [server], "the server is gone", timeout=30)
            wait_until(lambda: answers(second.url), "it is back in the container of the other user", timeout=60)
            assert len(postmasters(home)) == 1
            assert stored_answer(second.url) == 42
    wait_until(lambda: not postmasters(home), "all has ended with the containers", timeout=30)


def test_a_server_that_cannot_be_reached_is_refused_at_once_with_the_reason(place: Path) -> None:
    """Its socket is in a directory of the other container alone."""
    home = place / ("long" * 30) / ".trueup"
    with EmbeddedPostgres(home, settings={"fsync": "off"}) as url:
        hidden = sockets.socket_directory(Home(home).cluster)
        assert hidden.is_dir()
        (server,) = postmasters(home)
        script = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
        user = [sys.executable, "-m", "tests.embedded.user", str(home)]
        started = time.monotonic()
        refused = subprocess.run(
            [*CONTAINER, "sh", "-c", script, hidden, *user], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        assert time.monotonic() - started < ANSWER_WITHIN / 2
        assert refused.returncode != 0
        assert "is served by a PostgreSQL that cannot be seen from here" in refused.stderr
        assert str(hidden) in refused.stderr
        assert postmasters(home) == [server]
        assert answers(url)
    EmbeddedPostgres(home).stop()


def test_a_server_killed_together_with_its_keeper_comes_back_for_its_users(
    home: Path, shared: EmbeddedPostgres
) -> None:
    """Nobody else arrives."""
    url = shared.acquire()
    store_answer(url)
    for keeper in keepers(home):
        os.kill(keeper, signal.SIGKILL)
    server_of(home).kill()
    wait_until(lambda: answers(url), "the server is back", timeout=60)
    assert stored_answer(url) == 42
    assert len(postmasters(home)) == 1
    EmbeddedPostgres(home).stop()
    with pytest.raises(TimeoutError):
        wait_until(lambda: answers(url), "a server that was stopped on purpose comes back", timeout=3)


def test_a_server_that_died_of_a_full_disk_comes_back_once_there_is_room(place: Path) -> None:
    private = ["unshare", "--user", "--map-root-user", "--mount"]
    done = subprocess.run(
        [*private, sys.executable, "-m", "tests.embedded.full_disk", str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert done.stdout.splitlines() == ["DatabaseUnavailable", "came back"], done.stderr


def test_a_long_name_of_the_directory_for_temporary_files_is_no_obstacle(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = place / ("t" * 110)
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    home = temporary / ".trueup"
    with EmbeddedPostgres(home, settings={"fsync": "off"}) as url:
        assert answers(url)
        short = sockets.socket_directory(Home(home).cluster)
        assert short.stat().st_mode & 0o777 == 0o700
    EmbeddedPostgres(home).stop()
    assert not short.exists()
    shutil.rmtree(home)
