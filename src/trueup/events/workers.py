"""What happens to workers, and to the loops in them."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """A worker registered as this holder; after losing its lease it registers again, as another one."""

    name = "worker.started"
    holder: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    kinds: int


@dataclass(frozen=True, slots=True)
class ModuleDeclared(Event):
    """What a module of the application declares on the App of a worker that is about to start."""

    name = "module.declared"
    module_name: str
    jobs: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    reconcilers: tuple[str, ...] = ()
    scans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerProcessEnded(Event):
    """A process of `trueup worker --processes` exited unexpectedly; a new one starts after `restart_in_s` seconds.

    With `--reload` that is null: a new one starts when a file changes.
    """

    name = "worker.process_ended"
    pid: int
    exit_code: int
    restart_in_s: float | None


@dataclass(frozen=True, slots=True)
class WorkersReloaded(Event):
    """Files changed, so `trueup worker --reload` restarts its processes. `changed` names up to ten of them."""

    name = "worker.reloaded"
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerStopping(Event):
    """The worker stopped claiming; running jobs get up to `drain_s` seconds."""

    name = "worker.stopping"
    holder: str
    running: int
    waiting: int
    drain_s: float


@dataclass(frozen=True, slots=True)
class WorkerStopped(Event):
    """A worker has ended: `released` jobs were handed back; `abandoned` handlers ignored their cancellation."""

    name = "worker.stopped"
    holder: str
    released: int
    abandoned: int


@dataclass(frozen=True, slots=True)
class WorkerLeaseLost(Event):
    """This process stopped trusting its lease: it cancels handlers, drops their finishes, and registers again as another holder."""

    name = "worker.lease_lost"
    holder: str
    reason: str
    jobs: int


@dataclass(frozen=True, slots=True)
class WorkerExpired(Event):
    """Another worker's lease expired, and all its jobs were taken over."""

    name = "worker.expired"
    holder: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class RenewalFailed(Event):
    """A renewal of the lease failed; the worker tries again until `trusted_for_s` is used up."""

    name = "worker.renewal_failed"
    holder: str
    error: str
    trusted_for_s: float


@dataclass(frozen=True, slots=True)
class LoopBlocked(Event):
    """The event loop has not run for a while.

    `handler` is the job whose code is on its stack, or else the innermost function that is neither Python's nor a package's.
    """

    name = "worker.loop_blocked"
    handler: str
    seconds: float
    stack: str


@dataclass(frozen=True, slots=True)
class DowntimeFound(Event):
    """The first worker started after a time in which none was alive. The fleet catches up from here on."""

    name = "fleet.downtime"
    since: str
    until: str
    seconds: float


@dataclass(frozen=True, slots=True)
class AlertRaised(Event):
    """A check has failed for `alert_after`. Emitted once, by the worker that runs the checks; needs `alert_url`."""

    name = "alert.raised"
    check: str
    severity: str
    problem: str
    advice: str
    lasted_s: float


@dataclass(frozen=True, slots=True)
class AlertResolved(Event):
    """A check for which an alert was raised passes again. `problem` is what was wrong."""

    name = "alert.resolved"
    check: str
    severity: str
    problem: str
    lasted_s: float


@dataclass(frozen=True, slots=True)
class ServiceFailed(Event):
    """One pass of a loop raised; the loop continues. `times` in a row: reported at 1, 2, 4, 8 …, and once a minute."""

    name = "service.failed"
    service: str
    error_type: str
    error: str
    times: int = 1
