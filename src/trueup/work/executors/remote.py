"""Handlers that run on a `concurrent.futures.Executor`, in another process perhaps.

A decorated function cannot be pickled: under its name the other process finds the declared job. So it is sent by name, and
the job found there is asked for its function.

Arguments, results and errors travel as bytes that only these two functions open. A process pool opens what it carries in threads
of its own, and one value that cannot be read back there breaks the pool for every job.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
import traceback
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple

from trueup.jobs.definition import Job
from trueup.jobs.failure import describe, type_name
from trueup.texts import without_contents


class HandlerError(Exception):
    """An error of another process that could not be brought here; its type, text and traceback were."""


class Sealed(NamedTuple):
    """How a call ended. `said` describes an error in plain text, for when the error itself cannot be read back."""

    payload: bytes
    failed: bool = False
    said: str = ""


def submit(executor: Executor, job: Job[Any, Any], args: list[Any], kwargs: dict[str, Any]) -> Future[Any]:
    function = job.function
    if isinstance(executor, ThreadPoolExecutor):
        return executor.submit(function, *args, **kwargs)
    if "<locals>" in function.__qualname__ or function.__name__ == "<lambda>":
        # The function has no name to be found by; some executors send it all the same.
        return executor.submit(function, *args, **kwargs)
    return executor.submit(call_by_name, function.__module__, function.__qualname__, pickle.dumps((args, kwargs)))


def opened(result: Any) -> Any:
    """The result of a submitted call. Raises what the function raised."""
    if not isinstance(result, Sealed):
        return result
    try:
        value = pickle.loads(result.payload)  # noqa: S301 - made by `call_by_name` in a process of ours
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise HandlerError(result.said or f"its result cannot be read back: {error}") from None
    if not result.failed:
        return value
    if isinstance(value, KeyboardInterrupt | StopIteration | GeneratorExit):
        raise HandlerError(result.said)  # here they would end this process, or the coroutine that waits
    raise value


def call_by_name(module: str, name: str, given: bytes) -> Sealed:
    """Call the function of that name, or the one declared as a job under it."""
    if multiprocessing.parent_process() is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then decides about its jobs
    try:
        found = attrgetter(name)(import_module(module))
        function = found.function if isinstance(found, Job) else found
        args, kwargs = pickle.loads(given)  # noqa: S301 - made by `submit`
        return Sealed(pickle.dumps(function(*args, **kwargs)))
    except BaseException as error:
        return _failed(error)


def _failed(error: BaseException) -> Sealed:
    trace = without_contents("".join(traceback.format_exception(error)), error)
    said = f"{type_name(error)}: {describe(error)}\n{trace}"
    try:
        error.add_note(f"In the other process:\n{trace}")
        return Sealed(pickle.dumps(error), failed=True, said=said)
    except Exception:
        return Sealed(b"", failed=True, said=said)
