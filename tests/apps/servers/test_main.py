"""Servers for as long as a command runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import redis

from apps.servers.__main__ import USAGE
from tests.support.processes import ROOT

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


WAITS = """
import os, redis, signal, sys, time
client = redis.Redis.from_url(os.environ["PULSE_REDIS_URL"])
def end(*_):
    time.sleep(0.2)
    sys.exit(7 if client.ping() else 1)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
print(os.environ["PULSE_REDIS_URL"], flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "to_all"),
    [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGINT, True)],
    ids=["SIGTERM", "a closed terminal", "Ctrl-C"],
)
def test_a_signal_ends_the_command_and_then_the_servers(number: signal.Signals, to_all: bool) -> None:
    process = subprocess.Popen(
        [*SERVERS, "redis", "--", sys.executable, "-c", WAITS],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if to_all:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        assert process.wait(30) == 7, "the command still had its server at its end"
    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(url).ping()


@pytest.mark.parametrize("arguments", [[], ["redis"], ["redis", "--"], ["--", "true"], ["mongo", "--", "true"]])
def test_what_is_not_clear_is_answered_with_the_usage(arguments: list[str]) -> None:
    ran = subprocess.run([*SERVERS, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (ran.returncode, ran.stderr.strip()) == (2, USAGE)
