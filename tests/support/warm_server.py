"""The warm process behind `tests.support.warm`: `python -m tests.support.warm_server SOCKET FAMILY`.

It has one thread, imports what its family needs but nothing of the project that looks at its environment when it is imported,
and then forks a process per request. The forked process leaves the loop and runs the module as `__main__`, so that the
interpreter ends it as any other: exceptions, threads, `atexit` and all.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import runpy
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module, reload
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MAX_REQUEST = 200_000  # bytes: mostly the environment
ENGINE = (
    "_strptime",
    "psycopg_binary._uuid",
    "pydantic.types",
    "trueup.app",
    "trueup.app.declared",
    "trueup.cli.loading",
    "trueup.cli.main",
    "trueup.jobs.arguments",
    "trueup.jobs.result_shape",
    "trueup.observe.fleet",
    "trueup.observe.lines",
    "trueup.operate.alerts",
    "trueup.operate.checks",
    "trueup.operate.jobs",
    "trueup.operate.alerts",
    "trueup.operate.reconcilers",
    "trueup.operate.recovery",
    "trueup.operate.schedules",
    "trueup.operate.watch",
    "trueup.store.leases",
    "trueup.work.leases.lease",
    "trueup.work.worker",
    "uvloop",
)
# What their servers import when they start.
SERVING = (
    "anyio._backends._asyncio",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)


def serve(requests: socket.socket) -> dict[str, Any]:
    """Answer until the other end is closed. Returns in forked processes only, with what they are to run."""
    while True:
        message, files, _, _ = socket.recv_fds(requests, MAX_REQUEST, 3)
        if not message:
            os._exit(0)
        request: dict[str, Any] = json.loads(message)
        if "pid" in request:
            answer = _ended(request["pid"])
        else:
            answer = os.fork()
            if answer == 0:
                requests.close()
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                return request
            for file in files:
                os.close(file)
        requests.send(json.dumps(answer).encode())


def _ended(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def become(request: dict[str, Any]) -> list[str]:
    """Take over the environment and the directory; what was decided by the old environment is decided anew."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = request["cwd"]  # where `-m` puts the directory it is started in
    reload(sys.modules["trueup.faults"])  # the one module that looks at its environment when it is imported
    arguments: list[str] = request["argv"]
    return arguments


def packages_of(family: str) -> list[str]:
    """Every module outside of the project that any file of the family imports, anywhere in it."""
    found: set[str] = set()
    for file in [*(ROOT / family).glob("*.py"), *(ROOT / family).glob("*/*.py")]:
        found.update(_imported(ast.parse(file.read_text())))
    return sorted(found)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (each.name for each in names)
            case ast.ImportFrom(str(module), names, 0) if module.split(".")[0] not in ("apps", "tests", "__future__"):
                yield module
                yield from (f"{module}.{each.name}" for each in names)  # each may be a module of its own


if __name__ == "__main__":
    descriptor, family = int(sys.argv[1]), sys.argv[2]
    for name in (*ENGINE, *((*SERVING, *packages_of(family)) if family == "apps" else ())):
        with suppress(ImportError):  # what only type checkers import, and what is no module
            import_module(name)
    gc.collect()
    gc.freeze()  # collecting in a forked process would copy every page of it
    program = become(serve(socket.socket(fileno=descriptor)))
    sys.argv = program  # `runpy` replaces the first by the file's path
    runpy.run_module(program[0], run_name="__main__", alter_sys=True)
