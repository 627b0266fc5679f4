"""Servers for as long as a command runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apps.servers.__main__ import USAGE
from tests.support.processes import ROOT
from tests.support.waiting import wait_until

SERVERS = [sys.executable, "-m", "apps.servers"]


def test_the_command_finds_the_servers_in_its_environment_and_passes_its_status() -> None:
    asks = (
        "import os, redis, sys; redis.Redis.from_url(os.environ['PULSE_REDIS_URL']).ping();"
        " print(os.environ['NATS_URL'][:17]); sys.exit(7)"
    )
    ran = subprocess.run(
        [*SERVERS, "redis", "nats", "--", sys.executable, "-c", asks],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout) == (7, "nats://127.0.0.1:\n"), ran.stderr


def test_a_signal_ends_the_command_and_then_the_servers(tmp_path: Path) -> None:
    said = tmp_path / "url"
    waits = f"import os, time; open({str(said)!r}, 'w').write(os.environ['PULSE_REDIS_URL']); time.sleep(60)"
    process = subprocess.Popen(
        [*SERVERS, "redis", "--", sys.executable, "-c", waits], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: said.exists() and said.read_text().startswith("redis://"), "it runs", timeout=30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) != 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("arguments", [[], ["redis"], ["redis", "--"], ["--", "true"], ["mongo", "--", "true"]])
def test_what_is_not_clear_is_answered_with_the_usage(arguments: list[str]) -> None:
    ran = subprocess.run([*SERVERS, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (ran.returncode, ran.stderr.strip()) == (2, USAGE)
