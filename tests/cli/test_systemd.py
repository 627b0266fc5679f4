"""What a worker tells systemd, heard on a real socket as systemd hears it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from trueup.cli.systemd import Systemd, without_systemd

Start = Callable[..., subprocess.Popen[str]]


class Manager:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.socket.settimeout(60)

    def heard(self) -> list[str]:
        return self.socket.recv(4096).decode().splitlines()

    def heard_until(self, line: str) -> list[str]:
        """The lines up to this one."""
        lines: list[str] = []
        while line not in lines:
            lines += self.heard()
        return lines


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    heard = Manager(str(tmp_path / "notify") if request.param == "path" else f"@trueup-{uuid4()}")
    yield heard
    heard.socket.close()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [[], ["--processes", "2"]], ids=["one process", "a parent"])
def test_a_worker_says_that_it_is_ready_lives_and_stops(start: Start, manager: Manager, processes: list[str]) -> None:
    process = start("worker", *processes, NOTIFY_SOCKET=manager.address, WATCHDOG_USEC="400000")
    lines = manager.heard_until("READY=1")
    assert set(lines) - {"WATCHDOG=1"} <= {"READY=1", *(line for line in lines if line.startswith("STATUS="))}
    manager.heard_until("WATCHDOG=1")
    process.send_signal(signal.SIGTERM)
    manager.heard_until("STOPPING=1")
    _, err = process.communicate(timeout=60)
    if not processes:  # children that are asked to stop while they start may end by the signal
        assert process.returncode == 0, err


@pytest.mark.asyncio
async def test_a_worker_that_hangs_sends_no_sign_of_life_but_the_reason(manager: Manager) -> None:
    systemd = Systemd.of({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "20000"})
    assert systemd is not None
    watch = asyncio.create_task(systemd.watch(lambda: "the lease has not been renewed"))
    try:
        assert await asyncio.to_thread(manager.heard) == ["STATUS=the lease has not been renewed"]
    finally:
        watch.cancel()


@pytest.mark.parametrize(
    ("variables", "watchdog"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_for_the_process_that_systemd_names(variables: dict[str, str], watchdog: float | None) -> None:
    systemd = Systemd.of({"NOTIFY_SOCKET": "/run/notify", **variables})
    assert systemd is not None
    assert systemd.watchdog == watchdog
    assert without_systemd({"HOME": "/", "NOTIFY_SOCKET": "/run/notify", **variables}) == {"HOME": "/"}


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1"])
def test_without_a_socket_that_we_know_nothing_is_sent(address: str) -> None:
    assert Systemd.of({"NOTIFY_SOCKET": address}) is None
    assert Systemd.of({}) is None


def test_a_manager_that_is_gone_or_does_not_read_harms_nobody(tmp_path: Path) -> None:
    Systemd(str(tmp_path / "gone"), None).ready("fine")
    deaf = Manager(str(tmp_path / "deaf"))
    try:
        for _ in range(2_000):  # more than its queue holds
            Systemd(deaf.address, None).stopping()
    finally:
        deaf.socket.close()
