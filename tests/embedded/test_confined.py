"""What a server that root has started can open: its own files and the system's, and not root's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from trueup.embedded import confined
from trueup.embedded.embedded import EmbeddedPostgres

AM_ROOT = os.geteuid() == 0


def run(script: str, *writable: Path) -> str:
    """What a shell prints that may read the system's files and write to these."""
    command = [sys.executable, "-I", "-S", confined.__file__, "-w", *writable, "--", "/bin/sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def place(place_for_programs: Path) -> Path:
    """Not in memory: that is below /dev, which belongs to the system."""
    return place_for_programs


@pytest.fixture
def secret(place: Path) -> Path:
    path = place / "secret"
    path.touch(mode=0o600)
    path.write_text("opensesame")
    return path


def test_a_confined_program_opens_its_own_files_and_the_systems_and_no_others(place: Path, secret: Path) -> None:
    assert confined.available(), "these tests need a kernel with Landlock"
    own = place / "own"
    own.mkdir()
    assert run(f"echo hello > {own}/a && mkdir {own}/b && mv {own}/a {own}/b/c && cat {own}/b/c", own) == "hello\n"
    assert run("cat /etc/passwd | head -c 4; echo x > /dev/null && echo written") == "rootwritten\n"
    assert run(f"cat {secret}; cat /etc/shadow; ls {place}; echo x > {place}/new; echo done", own) == "done\n"
    assert not (place / "new").exists()


@pytest.mark.slow
def test_a_shared_server_of_root_cannot_read_roots_files(home: Path, shared: EmbeddedPostgres, secret: Path) -> None:
    with psycopg.connect(shared.acquire(), autocommit=True) as connection:

        def read(path: object) -> str:
            row = connection.execute("select pg_read_file(%s)", [str(path)]).fetchone()
            assert row is not None
            return str(row[0])

        assert read("PG_VERSION")
        if not AM_ROOT:
            assert read(secret) == "opensesame", "of an ordinary user it can read what that user can"
            return
        for path in (secret, "/etc/shadow", "/root/.profile", f"/proc/{os.getpid()}/environ"):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFile)):
                read(path)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("copy (select 1) to '/etc/cron.d/planted'")
        with pytest.raises(psycopg.errors.ExternalRoutineException):
            connection.execute(f"copy (select 1) to program 'cat {secret}'")
        connection.execute("create table ordinary as select * from generate_series(1, 100000)")
        connection.execute("create database another")
        connection.execute("vacuum full ordinary")
