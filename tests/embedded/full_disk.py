"""A shared server on a disk that fills up: `python -m tests.embedded.full_disk DIRECTORY`, as root of a mount namespace.

Prints `came back` when its user, who did nothing but wait, has the server again after there was room.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg

from tests.embedded.test_keeper import answers, stored_answer
from tests.support.waiting import wait_until
from trueup.embedded.embedded import EmbeddedPostgres
from trueup.embedded.home import Home

SETTINGS = {"fsync": "off", "min_wal_size": "32MB", "max_wal_size": "32MB", "wal_recycle": "off"}


def fill(ballast: Path) -> None:
    with ballast.open("wb") as file, suppress(OSError):
        while True:
            file.write(b"x" * 65536)
            file.flush()


def main() -> None:
    disk = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", disk], check=True)
    home = Home(disk / ".trueup")
    ballast = disk / "ballast"
    with EmbeddedPostgres(home.directory, settings=SETTINGS, linger=timedelta(0)) as url:
        with psycopg.connect(url) as connection:
            connection.execute("create table stored as select 42 as answer")
        fill(ballast)
        with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as connection:
            while True:
                connection.execute("select pg_logical_emit_message(true, 'ballast', repeat('x', 1000000))")
        wait_until(lambda: "the server crashed" in home.keeper_log.read_text(), "it crashed", timeout=60)
        wait_until(lambda: home.keeper_says().startswith("failed"), "its keeper says why", timeout=60)
        try:
            EmbeddedPostgres(home.directory).acquire()
        except Exception as refused:
            print(type(refused).__name__)
        ballast.unlink()
        wait_until(lambda: answers(url), "the server is back", timeout=60)
        assert stored_answer(url) == 42
    EmbeddedPostgres(home.directory).stop()
    print("came back")


if __name__ == "__main__":
    main()
