"""Named crash points, for tests: `TRUEUP_FAULT=after_claim:kill` makes the process die there.

Inert unless the variable is set when the process starts. `point:action[:count]`, several separated by commas; the action
happens the `count`-th time the point is reached (default: the first). Actions: `kill` (SIGKILL), `stop` (SIGSTOP), `exit`
(os._exit), `raise`, `sleep=SECONDS`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trueup.errors import ConfigError

POINTS = (
    "before_claim",
    "after_claim",
    "before_handler",
    "after_handler",
    "before_finish",
    "after_finish",
    "in_exhausted",
    "after_exhausted",
    "before_commit",
    "after_commit",
    "before_rescue",
    "after_rescue",
    "before_renew",
    "before_row_claim",
    "after_row_claim",
    "before_row_handler",
    "after_row_checkpoint",
    "after_row_handler",
    "before_row_settle",
    "after_row_settle",
    "before_row_commit",
    "mid_tick",
    "mid_migration",
    "mid_enqueue_many",
)


class InjectedFault(Exception):
    """The error of the action `raise`."""


class Died(BaseException):
    """Ends a worker in a test without ending the process; a handler's `except Exception` does not catch it."""


@dataclass
class _Fault:
    action: str
    left: int


def _parse(text: str) -> dict[str, _Fault]:
    faults: dict[str, _Fault] = {}
    for part in filter(None, text.split(",")):
        point, _, rest = part.partition(":")
        action, _, count = rest.partition(":")
        if point not in POINTS or not action:
            raise ConfigError(f"TRUEUP_FAULT: {part!r} is not point:action[:count]; the points are {', '.join(POINTS)}")
        faults[point] = _Fault(action, int(count or 1))
    return faults


_armed = _parse(os.environ.get("TRUEUP_FAULT", ""))
_dying: set[str] = set()


@contextmanager
def dying_at(point: str) -> Iterator[None]:
    """Inside this block a handler that reaches the point raises Died."""
    _dying.add(point)
    try:
        yield
    finally:
        _dying.discard(point)


def hit(point: str) -> None:
    """Perform the fault that is set for this point, if any."""
    if point in _dying:
        raise Died(point)
    fault = _armed.get(point)
    if fault is None:
        return
    fault.left -= 1
    if fault.left != 0:
        return
    match fault.action.partition("="):
        case ("kill", _, _):
            os.kill(os.getpid(), signal.SIGKILL)
        case ("stop", _, _):
            os.kill(os.getpid(), signal.SIGSTOP)
        case ("exit", _, _):
            os._exit(66)
        case ("sleep", _, seconds):
            time.sleep(float(seconds))
        case ("raise", _, _):
            raise InjectedFault(point)
        case _:
            raise ConfigError(f"TRUEUP_FAULT: unknown action {fault.action!r}")
