"""The parameters and answers of the API. Where the Python API has a dataclass, the JSON is that dataclass."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from trueup.jobs.records import JobError, JobProgress, Pause, QueueDepth
from trueup.operate.alerts import AlertRule
from trueup.operate.checks import Finding
from trueup.store.actions import ActionRecord
from trueup.store.views import MAX_ID
from trueup.store.workers import Downtime
from trueup.web.dashboard.dry_runs import MAX_ROWS, ROWS

CONDITION = Field(min_length=1, max_length=200)
SOME = Field(min_length=1)  # of a list that is given: an empty one would be no condition
State = Literal["queued", "running", "done", "dead", "cancelled"]


class Model(BaseModel):
    model_config = ConfigDict(from_attributes=True, extra="ignore")


class Asked(BaseModel):
    """What a request says. A name that means nothing here is refused: a condition that is left out selects more jobs."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


class Problem(Model):
    """Why a request was refused, in a sentence."""

    error: str


class Sources(Model):
    sources: list[str]


class Overview(Model):
    at: datetime
    ok: bool
    findings: list[Finding]
    queues: list[QueueDepth]
    workers_alive: int


class FlowQuery(Asked):
    window: Literal["1h", "6h", "24h"] = "1h"


class Span(Model):
    """Jobs in one span of time; `backlog` is how many were live at its end. The last span has only begun."""

    begins_at: datetime
    enqueued: int
    done: int
    dead: int
    cancelled: int
    worst_waited_s: float
    backlog: float


class Flow(Model):
    spans: list[Span]


class JobSummary(Model):
    id: int
    kind: str
    queue: str
    state: State
    priority: int
    attempt: int
    max_attempts: int
    run_at: datetime
    enqueued_at: datetime
    finished_at: datetime | None
    error: JobError | None
    progress: JobProgress | None


class JobList(Model):
    """`next` is the `before` of the following page; null after the last one. A page may be short and have a `next`."""

    jobs: list[JobSummary]
    next: int | None


class JobFilter(Asked):
    """Conditions that all hold."""

    state: Annotated[list[State], SOME] = []
    kind: Annotated[str, CONDITION] | None = None
    queue: Annotated[str, CONDITION] | None = None
    schedule: Annotated[str, CONDITION] | None = None
    arg: Annotated[list[Annotated[str, CONDITION]], SOME] = []
    error: Annotated[str, CONDITION] | None = None
    attempts: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    older: Annotated[str, Field(min_length=1, max_length=20, description="a duration: 24h")] | None = None


class JobQuery(JobFilter):
    before: Annotated[int, Field(ge=1, le=MAX_ID)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class Job(JobSummary):
    """Arguments and result as people may see them."""

    args: Any
    result: Any
    meta: Any
    reason: str | None
    unique_key: str | None
    lane: str
    key: str
    term: int
    holder: str | None
    crashes: int
    claimed_at: datetime | None
    errors: list[JobError]


class Blockage(Model):
    """What last blocked the event loop of a worker, for at least `seconds`, and how often it was blocked."""

    times: int
    handler: str
    seconds: float
    at: datetime


class Worker(Model):
    holder: str
    host: str
    pid: int
    release: str | None
    service: str | None
    queues: list[str]
    concurrency: int
    running: int
    started_at: datetime
    lease_until: datetime
    stopping: bool
    alive: bool
    blocked: Blockage | None


class Lease(Model):
    name: str
    label: str | None
    term: int
    lease_until: datetime | None
    held: bool


class Fleet(Model):
    workers: list[Worker]
    leases: list[Lease]


class ScheduleFacts(Model):
    name: str
    state: str
    origin: str
    rule: str
    kind: str
    queue: str
    next_due_at: datetime | None
    note: str | None


class ScheduleSummary(ScheduleFacts):
    """`last_outcome` is what became of the last tick, `last_run` the state of its job."""

    last_due_at: datetime | None
    last_outcome: str | None
    last_job_id: int | None
    last_run: str | None


class Tick(Model):
    due_at: datetime
    count: int
    outcome: str
    reason: str | None
    job_id: int | None
    decided_at: datetime


class Schedule(ScheduleFacts):
    policy: dict[str, Any]
    ticks: list[Tick]


class Schedules(Model):
    schedules: list[ScheduleSummary]


class BackfillRange(Asked):
    """Times without an offset are in UTC. `rate` is how many runs may be enqueued: "100/s"."""

    start: Annotated[str, Field(max_length=40, description="such as 2031-01-01T09:00Z")]
    end: Annotated[str, Field(max_length=40, description="the last; it must be in the past")]
    rate: Annotated[str, Field(max_length=20)] = "100/s"


class BackfillPreview(Model):
    """What a backfill would do now: of the `ticks` in the range, `missing` were not fired; `first` are up to 100 of those."""

    ticks: int
    missing: int
    first: list[datetime]


class Run(Model):
    """A background action, started from a page or by this API. It ends with the dashboard's process."""

    id: int
    action: str
    what: str
    by: str
    state: Literal["waiting", "running", "done", "undone", "stopped", "failed"]
    started_at: datetime
    total: int | None
    seen: int
    done: int
    error: str | None


class Runs(Model):
    runs: list[Run]


class YearQuery(Asked):
    year: Annotated[int, Field(ge=1970, le=8999)] | None = None


class Touched(Model):
    """A time on the clocks of the schedule's zone that they skip (a gap) or show twice (a fold), and when it is due then.

    `reading` is what a clock on the wall shows, without an offset, such as `2026-03-29T02:30:00`.
    """

    reading: Annotated[datetime, WithJsonSchema({"type": "string"})]
    clocks: Literal["gap", "fold"]
    changed_at: datetime
    ticks: list[datetime]
    why: str


class Year(Model):
    """`more`: there are more than are listed."""

    year: int
    touched: list[Touched]
    more: bool


class ReconcilerSummary(Model):
    """`waiting` is null where `uncounted` says why it is not known; `rate` is rows per second of the last minutes."""

    name: str
    what: str
    state: str
    every: str | None
    last_swept_at: datetime | None
    last_error: str | None
    held: int
    resting: int
    quarantined: int
    discarded: int
    outcomes: dict[str, int]
    waiting: int | None
    uncounted: str
    rate: float
    eta_s: float | None


class Reconcilers(Model):
    reconcilers: list[ReconcilerSummary]


class Quarantined(Model):
    reconciler: str
    key: str
    attempt: int
    changed_at: datetime
    reason: str | None


class Reconciler(ReconcilerSummary):
    quarantine: list[Quarantined]


class Happened(Model):
    at: datetime
    headline: str
    detail: str
    made_by: str


class RowTimeline(Model):
    """One row as far as it is recorded; `timeline` has the newest first."""

    reconciler: str
    key: str
    state: str
    attempt: int
    reason: str | None
    due_at: datetime | None
    timeline: list[Happened]


class ActionList(Model):
    """`next` is the `before` of the following page; null after the last one."""

    actions: list[ActionRecord]
    next: int | None


class DryRunAsked(Asked):
    """`shadow` calls the handler; what it writes through trueup is rolled back, what it does elsewhere is not undone."""

    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = ROWS
    shadow: bool = False


class DryRow(Model):
    """A row (`key` to `outcome`) or an item of a scan. `outcome` is what the handler returned or raised, as text."""

    key: str | None = None
    state: str | None = None
    due_since: datetime | None = None
    attempts: int = 0
    outcome: str | None = None
    item: str | None = None
    next_cursor: str | None = None


class DryRun(Model):
    """`total` counts all rows there are; null when there are too many to count. `why` is why the sweep would be refused."""

    name: str
    would: str
    rows: list[DryRow]
    more: bool
    total: int | None
    why: str | None
    shadow: bool
    by: str
    at: datetime


class ActionQuery(Asked):
    actor: Annotated[str, CONDITION] | None = None
    via: Literal["cli", "python", "web"] | None = None
    action: Annotated[str, CONDITION] | None = None
    what: Literal["job", "queue", "kind", "schedule", "reconciler", "row"] | None = None
    name: Annotated[str, CONDITION] | None = None
    job: Annotated[int, Field(ge=1, le=MAX_ID)] | None = None
    within: Annotated[str, Field(min_length=1, max_length=20, description="a duration: 24h")] | None = None
    before: Annotated[int, Field(ge=1, le=MAX_ID)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class Alerts(Model):
    alerts: list[AlertRule]


class Queues(Model):
    queues: list[QueueDepth]
    paused: list[Pause]


class Reason(Asked):
    reason: Annotated[str, Field(max_length=200)] | None = None


class Recovery(Model):
    since: datetime
    until: datetime
    caught_up: bool
    summary: str
    downtimes: list[Downtime]


class RecoveryQuery(Asked):
    window: Literal["6h", "24h", "7d"] = "24h"


class NoQuery(Asked):
    """A query string without parameters."""


class Nothing(Asked):
    """A body without members: `{}`."""


class Key(Asked):
    key: Annotated[str, Field(min_length=1, max_length=1000)]


class Done(Model):
    done: str
