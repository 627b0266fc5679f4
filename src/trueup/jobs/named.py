"""Jobs that another program declares and runs: here only their name is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from trueup.backoff import JOB_RETRY
from trueup.errors import ConfigError, InvalidArguments
from trueup.jobs.definition import Enqueuer, Job
from trueup.jobs.limits import Controls
from trueup.jobs.names import checked_name
from trueup.jobs.options import Options
from trueup.jobs.payload import encoded


class UndeclaredArguments:
    """Arguments for a function that is not known here: any names, with values that JSON can hold."""

    names: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = {}

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args:
            raise InvalidArguments(
                f"{self.kind}: this App does not declare it, so the names of its parameters are not known; "
                "name each argument"
            )
        return dict(kwargs)

    def dump(self, values: dict[str, Any], limit: int) -> str:
        return encoded(values, limit, self.kind)


class NamedJob(Job[..., Any]):
    """A kind that other programs declare. It can be enqueued; its arguments are checked where it runs.

    Without `using(…)` it goes to the queue "default" with the default number of attempts.
    """

    def __init__(self, enqueuer: Enqueuer, kind: str) -> None:
        self.kind = checked_name("job name", kind)
        self.queue = "default"
        self.function = self.__wrapped__ = _nowhere
        self.__name__ = kind
        self.is_async = False
        self.retry = JOB_RETRY
        self.timeout = self.executor = self.exhausted = None
        self.exhausted_is_async = False
        self.arguments = UndeclaredArguments(kind)  # type: ignore[assignment]
        self.controls = Controls()
        self.lane = self.controls.lane(kind, self.queue)
        self._enqueuer = enqueuer
        self._defaults = Options()

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ConfigError(f"{self.kind}: this App does not declare it, so it can be enqueued but not called here")


def _nowhere(**_: Any) -> None: ...
