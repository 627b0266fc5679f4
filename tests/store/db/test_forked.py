"""An App that was used before a fork, as a web server's that loads it first: parent and children go on, each by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

PRELUDE = """
from trueup import App  # first, so that nothing else has imported logging before: the order of their hooks in a fork matters
import asyncio, os, sys, threading

app = App(sys.argv[1], pool_size=2)

@app.job
async def send(n: int) -> None: ...

def fork(child):
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit(0)
    return pid

def all_ended(pids):
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert codes == [0] * len(codes), codes
"""

PROGRAMS = {
    "sync": """
send.enqueue_sync(0)
all_ended([fork(lambda: send.enqueue_sync(1)) for _ in range(3)])
send.enqueue_sync(0)
""",
    "async": """
asyncio.run(send.enqueue(0))
all_ended([fork(lambda: asyncio.run(send.enqueue(1))) for _ in range(3)])
asyncio.run(send.enqueue(0))
""",
    "lease": """
with app.lease_sync("before"):
    pass
def child():
    with app.lease_sync("in the child".replace(" ", "-"), wait="10s"):
        send.enqueue_sync(1)
with app.lease_sync("held") as lease:
    all_ended([fork(child) for _ in range(3)])
    lease.check()
send.enqueue_sync(0)
send.enqueue_sync(0)
""",
    "while others use it": """
stop = threading.Event()
def use():
    while not stop.is_set():
        with app.store.sync_pool.use() as connection:
            connection.execute("select pg_sleep(0.01)")
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
pids = [fork(lambda: (send.enqueue_sync(1), sys.stdout.flush(), os._exit(0))) for _ in range(3)]
all_ended(pids)
stop.set()
for thread in threads:
    thread.join()
send.enqueue_sync(0)
send.enqueue_sync(0)
""",
    "while the pool is being opened": """
with app.store.sync_pool._opening:
    pids = [fork(lambda: send.enqueue_sync(1)) for _ in range(3)]
all_ended(pids)
send.enqueue_sync(0)
send.enqueue_sync(0)
""",
}


def run(code: str, database_url: str, directory: Path) -> str:
    """What a program that begins with PRELUDE says on standard error; it must end well."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + code, database_url],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=directory,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_parent_and_children_go_on(database_url: str, program: str, tmp_path: Path) -> None:
    said = run(PROGRAMS[program] + "\napp.close_sync()\n", database_url, tmp_path)
    with psycopg.connect(database_url) as connection:
        sent = connection.execute("select args ->> 'n', count(*) from trueup.jobs group by 1 order by 1").fetchall()
    assert sent == [("0", 2), ("1", 3)], said


IMPORTING = """
import time
from importlib.abc import MetaPathFinder

begun = threading.Event()

class Slow(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:  # the importing thread holds its lock; a child forked now could never get it
            begun.set()
            time.sleep(0.5)

sys.meta_path.insert(0, Slow())
def use():
    {use}
thread = threading.Thread(target=use)
thread.start()
assert begun.wait(30)
all_ended([fork(use)])
thread.join()
"""


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("trueup.store.store", "send.enqueue_sync(0)"),
        ("trueup.store.enqueue", "send.enqueue_sync(0)"),
        ("psycopg_pool", "send.enqueue_many_sync([(0,)])"),
        ("trueup.operate.jobs", "app.jobs.get_sync(1)"),
        ("trueup.operate.jobs", "app.jobs.queues_sync()"),
        ("trueup.operate.results", "send.enqueue_sync(0).status_sync()"),
        ("trueup.operate.workers", "app.workers.list_sync()"),
        ("trueup.work.leases.lease", "app.lease_sync(f'of-{os.getpid()}').__enter__()"),
        ("trueup.work.worker", "app.worker()"),
        ("trueup.jobs.named", "app.enqueue_sync('other', n=1)"),
    ],
)
def test_a_fork_waits_for_what_another_thread_imports(database_url: str, module: str, use: str, tmp_path: Path) -> None:
    run(IMPORTING.format(module=module, use=use) + "\nos._exit(0)\n", database_url, tmp_path)
