"""A directory to follow a guide in: its files, its commands as processes, and nothing configured but the database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm

TRUEUP = Path(sys.executable).with_name("trueup")


class Terminal:
    """Runs `trueup …` in one directory: what is left running as the script, other commands as the module. What still runs at the
    end is killed."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self._environment = dict(environment)
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str, status: int = 0) -> str:
        """What the command wrote. Fails when it ends with another status."""
        ended = warm.run("trueup.cli", *arguments, cwd=self.directory, env=self._environment)
        assert ended.returncode == status, ended.stdout + ended.stderr
        return ended.stdout

    def job(self, job_id: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("jobs", "show", str(job_id), "--json"))
        return found

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Leave a command running; its output goes to `output.log`."""
        with (self.directory / "output.log").open("ab") as output:
            started = subprocess.Popen(
                [TRUEUP, *arguments],
                cwd=self.directory,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(started)
        return started

    @property
    def output(self) -> str:
        return (self.directory / "output.log").read_text(errors="replace")

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def clean_environment(database_url: str) -> dict[str, str]:
    """Ours, with nothing about trueup in it but the database."""
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith("TRUEUP_") and name != "DATABASE_URL"
    }
    return {**ours, "TRUEUP_DATABASE_URL": database_url}


@pytest.fixture
def terminal(tmp_path: Path, clean_environment: dict[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, clean_environment)
    yield terminal
    terminal.close()
