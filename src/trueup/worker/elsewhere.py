"""Handlers that run on a `concurrent.futures.Executor`, in another process perhaps.

A decorated function cannot be pickled: under its name the other process finds the declared job. So it is sent by name, and
the job found there is asked for its function.
"""

from __future__ import annotations

from concurrent.futures import Future
from importlib import import_module
from operator import attrgetter
from typing import Any

from trueup.jobs.definition import Job


def submit(definition: Job[Any, Any], args: list[Any], kwargs: dict[str, Any]) -> Future[Any]:
    executor, function = definition.executor, definition.function
    assert executor is not None
    if "<locals>" in function.__qualname__ or function.__name__ == "<lambda>":
        return executor.submit(function, *args, **kwargs)  # has no name to be found by; threads can run it all the same
    return executor.submit(call_by_name, function.__module__, function.__qualname__, args, kwargs)


def call_by_name(module: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call the function of that name, or the one declared as a job under it."""
    found = attrgetter(name)(import_module(module))
    function = found.function if isinstance(found, Job) else found
    return function(*args, **kwargs)
