"""The jobs an App knows, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trueup.errors import ConfigError, UnknownKind
from trueup.jobs.definition import Job


class Registry:
    def __init__(self) -> None:
        self._jobs: dict[str, Job[Any, Any]] = {}

    def add(self, job: Job[Any, Any]) -> None:
        known = self._jobs.get(job.kind)
        if known is not None and known.function is not job.function:
            where = f"{known.function.__module__}.{known.function.__qualname__}"
            raise ConfigError(f"job {job.kind!r} is declared twice (also by {where}); give one of them name=")
        self._jobs[job.kind] = job

    def get(self, kind: str) -> Job[Any, Any] | None:
        return self._jobs.get(kind)

    def __getitem__(self, kind: str) -> Job[Any, Any]:
        job = self._jobs.get(kind)
        if job is None:
            known = ", ".join(sorted(self._jobs)) or "none"
            raise UnknownKind(f"no job is called {kind!r}; registered: {known}")
        return job

    def __iter__(self) -> Iterator[Job[Any, Any]]:
        return iter(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def exhausted(self) -> tuple[str, ...]:
        """The kinds that have `exhausted=`."""
        return tuple(job.kind for job in self._jobs.values() if job.exhausted is not None)

    def queues(self) -> list[str]:
        """The queues its jobs go to by default, sorted."""
        return sorted({job.queue for job in self._jobs.values()})
