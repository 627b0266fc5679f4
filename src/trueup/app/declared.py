"""The options of `@app.cron` and `@app.every`, and the schedule and job that they declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trueup.backoff import SHORT_RETRY, Retry, retry_policy
from trueup.durations import Duration
from trueup.errors import ConfigError
from trueup.jobs.definition import Job
from trueup.jobs.exhausted import OnExhausted
from trueup.jobs.middleware import encode_meta
from trueup.leases.backend import Backend
from trueup.operate.schedules import PolicyOptions
from trueup.options import check_known
from trueup.schedules.policy import SchedulePolicy
from trueup.schedules.spec import Spec
from trueup.schedules.when import Every
from trueup.store.schedules import Entry
from trueup.work.jobs.exclusive import RunLease


class ScheduleOptions(PolicyOptions, total=False):
    """How ticks are treated (see PolicyOptions), and the options of each tick's job.

    With `lease` it runs under the lease `cron:{name}`. While another instance holds that lease, the run does not take place and
    the tick counts as skipped. A run holds it for at most `lease_ttl`; by default a little less than the time to the next tick.
    It is renewed for `lease_step` at a time, which is how long a dead holder blocks the others. `lease_key` is the number of
    an advisory lock, or the key in Redis, that other programs use, too. Every run carries `meta`, as `using(meta=…)` gives it to a job.
    """

    name: str | None
    queue: str
    retry: Retry | None
    timeout: Duration | None
    priority: int
    exhausted: OnExhausted | None
    meta: Mapping[str, Any] | None
    lease: Backend | None
    lease_ttl: Duration | None
    lease_step: Duration
    lease_key: int | str | None


FILLED_IN = {
    "tick": "Tick",
    "ctx": "Context",
    "context": "Context",
    "lease": "Lease",
}  # the values of parameters with these names


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule as the code declares it."""

    spec: Spec
    policy: SchedulePolicy
    lease: RunLease | None
    meta: str | None
    job_options: dict[str, Any]

    @classmethod
    def of(cls, spec: Spec, options: ScheduleOptions) -> Declared:
        """Raises ConfigError naming an invalid option, and TypeError for an unknown one, as a call does."""
        given: dict[str, Any] = dict(options)
        # Arguments of `every` and `cron` themselves.
        of_spec = ("anchor",) if isinstance(spec, Every) else ("dst", "tz")
        check_known("a schedule", given, [*ScheduleOptions.__annotations__, *of_spec])
        policy = SchedulePolicy.of(**{name: given.pop(name) for name in PolicyOptions.__annotations__ if name in given})
        lease = RunLease.of(
            given.pop("lease", None),
            given.pop("lease_ttl", None),
            given.pop("lease_key", None),
            given.pop("lease_step", None),
        )
        meta = given.pop("meta", None)
        # Runs that may wait for one another must not overlap: a limit of one, for the whole fleet.
        limit = None if policy.overlap in ("allow", "skip") else 1
        return cls(
            spec,
            policy,
            lease,
            None if meta is None else encode_meta("schedule", meta),
            {**given, "retry": retry_policy("schedule: retry", given.get("retry"), SHORT_RETRY), "limit": limit},
        )

    def entry(self, job: Job[Any, Any]) -> Entry:
        """The row to store for this schedule."""
        if job.arguments.names:
            named = [f"{name}: {FILLED_IN[name]}" for name in job.arguments.names if name in FILLED_IN]
            raise ConfigError(
                f"schedule {job.kind!r}: its function takes a Tick, a Context and, with lease=, its Lease, not {', '.join(job.arguments.names)}"
                + (f"; annotate {', '.join(named)}" if named else "")
            )
        priority = self.job_options.get("priority", 0)
        return Entry(
            job.kind,
            "code",
            self.spec,
            self.policy,
            job.kind,
            job.queue,
            job.lane,
            job.retry.max_attempts,
            priority,
            meta=self.meta,
        )
