"""Runs a program that can open only the files it needs: `python -I -S confined.py READABLE… -w WRITABLE… -- PROGRAM ARGUMENT…`.

For the embedded server of root. In a user namespace it runs as `nobody`, but to the file system it is still root: any SQL superuser could read root's files
through it. Landlock prevents that, without another user who would have to own and reach the data. Where the kernel has no Landlock (before 5.19, or switched off), the program runs unconfined.

A script of its own, on the standard library alone: it starts quickly, and is replaced by the program.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
PATH_BENEATH, VERSION, NO_NEW_PRIVS = 1, 1, 38
MIN_VERSION = 2  # before it, files could not be moved between directories at all

EXECUTE, WRITE, READ, READ_DIR, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
ON_FILES = EXECUTE | WRITE | READ | TRUNCATE
EVERYTHING = (1 << 14) - 1  # version 2: reading, writing, making, removing, moving

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/proc", "/sys")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/shm")  # noqa: S108
CONFIGURATION = tuple(  # of all /etc only what the C library asks for
    f"/etc/{name}"
    for name in (
        *("ld.so.cache", "ld.so.conf", "localtime", "passwd", "group", "nsswitch.conf"),
        *("hosts", "host.conf", "resolv.conf", "gai.conf", "services", "protocols"),
    )
)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def available() -> bool:
    """Whether this kernel can confine a program."""
    return sys.platform == "linux" and _call(CREATE_RULESET, None, 0, VERSION) >= MIN_VERSION


def confine(readable: list[str], writable: list[str]) -> None:
    """Keep this process and its children from opening any other file from now on. Raises OSError."""
    handled = EVERYTHING | (TRUNCATE if _call(CREATE_RULESET, None, 0, VERSION) >= 3 else 0)
    wanted = ctypes.c_uint64(handled)
    rules = _checked(_call(CREATE_RULESET, ctypes.byref(wanted), ctypes.sizeof(wanted), 0))
    for path in readable:
        _allow(rules, path, EXECUTE | READ | READ_DIR)
    for path in writable:
        _allow(rules, path, handled)
    _checked(ctypes.CDLL(None, use_errno=True).prctl(NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_call(RESTRICT_SELF, rules, 0))
    os.close(rules)


def _allow(rules: int, path: str, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this system
    if not stat.S_ISDIR(os.fstat(opened).st_mode):
        access &= ON_FILES
    rule = _PathBeneath(access, opened)
    _checked(_call(ADD_RULE, rules, PATH_BENEATH, ctypes.byref(rule), 0))
    os.close(opened)


def _call(number: int, *arguments: object) -> int:
    result: int = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
    return result


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def main(arguments: list[str]) -> None:
    program = arguments[arguments.index("--") + 1 :]
    paths = arguments[: arguments.index("--")]
    readable, writable = paths[: paths.index("-w")], paths[paths.index("-w") + 1 :]
    preloaded = os.environ.get("LD_PRELOAD", "").split(":")
    if available():
        confine([*SYSTEM, *CONFIGURATION, *filter(None, preloaded), *readable], [*DEVICES, *writable])
    os.execv(program[0], program)  # noqa: S606  the point of it


if __name__ == "__main__":
    main(sys.argv[1:])
