"""A small project with an App, and two ways to run commands in it: in this process, or as a real one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support import warm
from trueup.cli.main import main
from trueup.testing.worker import ManualWorker

SHOP = """
from __future__ import annotations

import asyncio
import time
from pathlib import Path

from trueup import App, Context, Retry

app = App()


@app.job
async def add(a: int, b: int = 2) -> int:
    return a + b


@app.job(queue="mail", retry=Retry(max_attempts=1))
async def send(to: str) -> None:
    raise ValueError(f"no mailbox for {to}")


@app.job(retry=Retry(max_attempts=5, first="1h", cap="1h"))
async def flaky() -> None:
    raise ConnectionError("refused by postgresql://app:geheim@db/x")


@app.job
async def wait_for(path: str) -> str:
    Path(path + ".started").touch()
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "there"


@app.job
async def ignore(path: str) -> None:
    Path(path + ".started").touch()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@app.job
def hang(path: str) -> None:
    Path(path + ".started").touch()
    time.sleep(60)


@app.job
async def hang_aside(path: str) -> None:
    await asyncio.gather(*(asyncio.to_thread(hang, path) for _ in range(40)))
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


Cli = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with `shop.py` in it, which declares jobs on `app`."""
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture
def bare_cli(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Runs a command in this process, in the project's directory, without a database or an App configured."""
    for name in [name for name in os.environ if name.startswith("TRUEUP_") or name == "DATABASE_URL"]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: object) -> Result:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Result(code, *capfd.readouterr())

    before = set(sys.modules)
    yield run
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(project)):
            del sys.modules[name]  # its App knows this test's database


@pytest.fixture
def cli(bare_cli: Cli, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The same on a migrated database, with the project's App."""
    monkeypatch.setenv("TRUEUP_DATABASE_URL", database_url)
    monkeypatch.setenv("TRUEUP_APP", "shop:app")
    return bare_cli


@pytest.fixture
def start(project: Path, database_url: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `trueup …` as a process of its own; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRUEUP_")}

    def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        # Not -X dev: on a busy machine asyncio's debug mode adds lines about slow callbacks to the log.
        process = warm.Popen(
            [sys.executable, "-W", "error", "-m", "trueup.cli", *map(str, arguments)],
            cwd=project,
            env={**clean, "TRUEUP_DATABASE_URL": database_url, "TRUEUP_APP": "shop:app", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture
def run_due(cli: Cli) -> Callable[[], int]:
    """Runs every due job of the project's App, once; returns how many."""

    async def run() -> int:
        import shop  # type: ignore[import-not-found]

        worker = ManualWorker(shop.app)
        await worker.begin()
        try:
            return await worker.run_pending()
        finally:
            await worker.end()
            await shop.app.close()

    return lambda: asyncio.run(run())
