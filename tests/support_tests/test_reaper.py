"""A test run that is killed leaves no server behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.reaper import MARK
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

RUN = """
import signal, tempfile
from pathlib import Path
from tests.support import reaper
from trueup.embedded.cluster import Cluster

kept = reaper.watch()
directory = Path(tempfile.mkdtemp(prefix=reaper.PREFIX))
Cluster(directory / "pg").start()
print(directory, flush=True)
signal.pause()
"""


def running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_server_ends_with_the_run_that_started_it_and_its_data_goes(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != MARK} | {"TMPDIR": str(tmp_path)}
    run = subprocess.Popen([sys.executable, "-c", RUN], env=environment, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    directory = Path(run.stdout.readline().strip())
    (server,) = [int(path.read_text().split()[0]) for path in directory.rglob("postmaster.pid")]
    assert running(server)
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    wait_until(lambda: not running(server), "the server has ended", timeout=30)
    wait_until(lambda: not directory.exists(), "its data is gone", timeout=30)
