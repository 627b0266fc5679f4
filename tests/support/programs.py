"""Programs that a test runs as a user would: commands, servers and workers in a directory, and requests to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.reaper import MARK

WITHIN = 60  # seconds for a command, on a busy machine
OURS = ("TRUEUP_", "PG", "DJANGO_", "PYTEST_")


def environment(**variables: str) -> dict[str, str]:
    """The variables of a user's shell: these, and none that name another database or configure these tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == MARK or (not name.startswith(OURS) and name != "DATABASE_URL")
    }
    return {**kept, **variables}


def run(directory: Path, variables: dict[str, str], *arguments: str | Path) -> str:
    """What `python …` prints; it must succeed."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@contextmanager
def running(directory: Path, variables: dict[str, str], log: Path, *arguments: str | Path) -> Iterator[None]:
    """`python …` in the background. When the test fails, what it has printed is part of the report."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    except BaseException as error:
        error.add_note(f"{' '.join(map(str, arguments))}:\n{log.read_text()[-4_000:]}")
        raise
    finally:
        process.terminate()
        try:
            process.wait(WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(url: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    body = None if given is None else json.dumps(given).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def answers(url: str) -> bool:
    try:
        ask(url)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
