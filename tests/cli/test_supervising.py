"""`trueup worker --processes N` and `--reload` as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.support.waiting import wait_until
from trueup.cli.supervising import snapshot

Start = Callable[..., subprocess.Popen[str]]


def pids(url: str) -> set[int]:
    """The processes of the workers that are registered and alive."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = {row[0] for row in connection.execute("select pid from trueup.workers")}
    return {pid for pid in found if Path(f"/proc/{pid}").exists()}


def wait_for(process: subprocess.Popen[str], url: str, count: int, but: set[int] = frozenset()) -> set[int]:  # type: ignore[assignment]
    there = f"{count} workers run"
    # Each look is a connection.
    wait_until(lambda: len(pids(url) - but) == count or process.poll() is not None, there, timeout=60, pause=0.2)
    assert process.poll() is None, process.communicate()
    return pids(url) - but


@pytest.mark.slow
def test_a_dead_process_is_replaced_and_a_signal_drains_them_all(
    cli: Cli, start: Start, database_url: str, tmp_path: Path
) -> None:
    process = start("worker", "--processes", "2", "--json")
    first = wait_for(process, database_url, 2)
    victim = min(first)
    os.kill(victim, signal.SIGKILL)
    (new,) = wait_for(process, database_url, 1, but=first)
    cli("jobs", "enqueue", "wait_for", "--arg", f"path={tmp_path / 'go'}")
    wait_until((tmp_path / "go.started").exists, "the handler runs", timeout=60)
    process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=60)
    log = [json.loads(line) for line in err.splitlines()]
    assert process.returncode == 0
    died = [line for line in log if line["message"] == "worker process ended"]
    assert [(line["pid"], line["exit_code"]) for line in died] == [(victim, -signal.SIGKILL)]
    assert sum(line["message"] == "worker stopped" for line in log) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in (*first, new))
    assert cli("jobs", "list", "--state", "done", "--json").json[0]["kind"] == "wait_for"


@pytest.mark.slow
def test_workers_drain_when_their_parent_is_killed(start: Start, database_url: str) -> None:
    process = start("worker", "--processes", "1")
    (worker,) = wait_for(process, database_url, 1)
    process.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{worker}").exists(), "the worker ended by itself", timeout=60)


@pytest.mark.slow
def test_a_configuration_that_is_refused_is_not_tried_again(start: Start, empty_database_url: str) -> None:
    process = start("worker", "--processes", "2", TRUEUP_DATABASE_URL=empty_database_url)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "trueup worker --migrate" in err


@pytest.mark.slow
def test_a_changed_file_restarts_every_worker_also_after_a_mistake(
    start: Start, project: Path, database_url: str
) -> None:
    process = start("worker", "--reload", "--processes", "2", "--json")
    seen = wait_for(process, database_url, 2)
    code = (project / "shop.py").read_text()
    (project / "shop.py").write_text(code + "\nraise RuntimeError('oops')\n")
    assert process.stderr is not None
    said: list[str] = []
    while sum("worker process ended" in line for line in said) < 2:
        said.append(process.stderr.readline())
    (project / "shop.py").write_text(code + "\n# mended\n")
    wait_for(process, database_url, 2, but=seen)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert sum("importing shop failed" in line for line in said) == 2
    assert '"changed":["shop.py"]' in "".join(said)
    assert "subscriber failed" not in "".join(said) + err


def test_only_python_files_of_the_project_are_watched(tmp_path: Path) -> None:
    for name in ("a.py", "deep/b.py", ".venv/c.py", "node_modules/d.py", "x/site-packages/e.py", "notes.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(snapshot(tmp_path)) == ["a.py", "deep/b.py"]
