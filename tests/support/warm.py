"""Processes of tests that are forked from one that has imported everything already.

`Popen` is `subprocess.Popen`, and starts the same programs. `python -W error -m module …` is forked instead of executed: the
first of a family (the modules of the applications, or all others) starts a warm process (`tests.support.warm_server`), and
each one after that saves its imports, up to two seconds of CPU time. The process that is forked is one of its own in all that
tests are about: signals, exit statuses, files, connections, memory.

What only a new interpreter can have is executed as usual: other options, libraries that are preloaded (libfaketime), variables
that Python and the C library read when they start. So are programs without `-m`, and everything where there is no fork server.
What remains different: processes of one family share the seed of `hash()`, and their command line is the warm process's.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OPTIONS = ["-W", "error"]
PRELOADING = ("LD_", "FAKETIME")
READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_", "OPENSSL_", "SSL_")
PAUSE = 0.005  # seconds between two looks at a process that is waited for

Ended = subprocess.CompletedProcess[str]


class Popen(subprocess.Popen[Any]):
    """Warm where it can be; otherwise as its base."""

    _parent: _Warm | None = None

    def _execute_child(self, args: Any, *given: Any) -> None:  # type: ignore[override]
        # executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, six ends of pipes, and
        # further ones that tests do not set: who the process is, and whether it leads a session.
        cwd, env, pipes, further = given[4], given[5], given[9:15], given[16:]
        plain = not any((given[0], given[1], given[3], given[8])) and further[:5] == (None, None, None, -1, False)
        environment = dict(os.environ if env is None else env)
        if not plain or not _can_be_warm(args, environment):
            super()._execute_child(args, *given)  # type: ignore[misc]
            return
        self._parent = _Warm.of(args[4], environment)
        ends = [number if end == -1 else end for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        self.pid = self._parent.fork(args[4:], environment, str(Path(cwd or ".").absolute()), ends)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *arguments: Any, **more: Any) -> int | None:
        if self._parent is None:
            status: int | None = super()._internal_poll(*arguments, **more)  # type: ignore[misc]
            return status
        with self._waitpid_lock:  # type: ignore[attr-defined]  # the status is told once: another thread may just have got it
            if self.returncode is None:
                self.returncode = self._parent.status(self.pid)
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._parent is None:
            found: tuple[int, int] = super()._try_wait(flags)  # type: ignore[misc]
            return found
        while (status := self._parent.status(self.pid)) is None:
            if flags & os.WNOHANG:
                return 0, 0
            time.sleep(PAUSE)
        return self.pid, status << 8 if status >= 0 else -status  # as wait(2) has it


def run(module: str, *arguments: str, cwd: Path, env: Mapping[str, str], timeout: float = 60) -> Ended:
    """`python -W error -m module …`, as `subprocess.run` with its output as text."""
    command = [sys.executable, *OPTIONS, "-m", module, *arguments]
    none, pipe = subprocess.DEVNULL, subprocess.PIPE
    with Popen(command, cwd=cwd, env=dict(env), stdin=none, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return Ended(command, process.returncode, out, err)


def _can_be_warm(args: Any, environment: dict[str, str]) -> bool:
    if sys.platform != "linux" or not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        return False
    preloads = any(name.startswith(PRELOADING) for name in environment)
    return args[:4] == [sys.executable, *OPTIONS, "-m"] and len(args) > 4 and not preloads


class _Warm:
    """A warm process of this one, for one family of modules and one set of variables that count at start."""

    _all: dict[tuple[str, tuple[tuple[str, str], ...]], _Warm] = {}  # noqa: RUF012
    _making = threading.Lock()

    @classmethod
    def of(cls, module: str, environment: dict[str, str]) -> _Warm:
        family = "apps" if module.startswith("apps.") else "trueup"
        counting = {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
        key = family, tuple(sorted(counting.items()))
        with cls._making:
            if key not in cls._all:
                cls._all[key] = cls(family, {"PATH": environment.get("PATH", os.defpath), **counting})
            return cls._all[key]

    def __init__(self, family: str, environment: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *OPTIONS, "-m", "tests.support.warm_server", str(theirs.fileno()), family],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def fork(self, arguments: list[str], environment: dict[str, str], directory: str, ends: list[int]) -> int:
        """The number of a new process that runs `python -m arguments` with these as its first three files."""
        pid = self._ask({"argv": arguments, "env": environment, "cwd": directory}, ends)
        assert isinstance(pid, int)
        return pid

    def status(self, pid: int) -> int | None:
        """The exit status, negative for a signal; None while it runs. Once it is told, the process is reaped."""
        return self._ask({"pid": pid}, [])

    def close(self) -> None:
        self._socket.close()  # it ends with us
        self._process.wait()

    def _ask(self, question: dict[str, Any], files: list[int]) -> int | None:
        with self._lock:
            message = json.dumps(question).encode()
            if files:
                socket.send_fds(self._socket, [message], files)
            else:
                self._socket.send(message)
            answer = self._socket.recv(100)
        if not answer:
            raise RuntimeError(f"the warm process {self._process.pid} has ended")
        said: int | None = json.loads(answer)
        return said
