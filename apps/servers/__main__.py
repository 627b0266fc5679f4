"""python -m apps.servers redis|nats|s3 … -- COMMAND: real servers for as long as the command runs, which finds them in its environment."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from os import environ

from apps.servers.server import ServerError

USAGE = "usage: python -m apps.servers redis|nats|s3 … -- COMMAND …"


def _redis(stack: ExitStack) -> dict[str, str]:
    from apps.servers.valkey import Valkey

    return {"PULSE_REDIS_URL": stack.enter_context(Valkey()).url}


def _nats(stack: ExitStack) -> dict[str, str]:
    from apps.servers.nats import NatsServer

    return {"NATS_URL": stack.enter_context(NatsServer()).url}


def _s3(stack: ExitStack) -> dict[str, str]:
    from apps.servers.seaweed import Seaweed

    return stack.enter_context(Seaweed("wallpapers")).environment()


STARTS: dict[str, Callable[[ExitStack], dict[str, str]]] = {"redis": _redis, "nats": _nats, "s3": _s3}


def main(arguments: list[str] | None = None) -> int:
    """The status of the command; 1 when a server does not start, 2 when it is not clear what is meant."""
    given = sys.argv[1:] if arguments is None else arguments
    end = given.index("--") if "--" in given else len(given)
    names, command = given[:end], given[end + 1 :]
    if not names or not command or not set(names) <= set(STARTS):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        with ExitStack() as stack:
            found = {name: value for each in names for name, value in STARTS[each](stack).items()}
            print(f"{', '.join(names)}: addresses are in {', '.join(sorted(found))}", file=sys.stderr)
            return _run(command, found)
    except ServerError as error:
        print(f"servers: {error}", file=sys.stderr)
        return 1


def _run(command: list[str], found: dict[str, str]) -> int:
    """Ctrl-C, SIGTERM and a closed terminal end the command; the servers are there until it has."""
    process = subprocess.Popen(command, env={**environ, **found})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command, too
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: process.terminate())
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
