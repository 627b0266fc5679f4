"""What to write instead of options that other libraries have: Celery, RQ, Dramatiq, APScheduler, Procrastinate, River, tenacity.

Only errors read this. The tests go through the options of each of these libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ATTEMPTS = "retry=Retry(max_attempts=…)"
FIRST = 'retry=Retry(first="1s", factor=2, cap="1m")'
CAP = 'retry=Retry(cap="1m")'
JITTER = "retry=Retry(jitter=True)"
ONLY = "retry=Retry(retry_on=(…))"
NOT_FOR = "retry=Retry(give_up_on=(…))"
LATER = '.using(delay="5m") where it is enqueued'
AT = ".using(run_at=…) where it is enqueued"
UNIQUE = 'unique="a key"'
CONTEXT = "def function(…, *, ctx: Context)"
SCHEDULED = '@app.cron("0 2 * * *") or @app.every("5m")'
EVERY = 'every="5m"'

RETRIES = {
    **dict.fromkeys(("max_attempts", "max_retries", "max_tries", "retries", "tries", "attempts"), ATTEMPTS),
    **dict.fromkeys(
        ("backoff", "retry_backoff", "retry_delay", "default_retry_delay", "min_backoff", "retry_wait", "retry_policy"),
        FIRST,
    ),
    **dict.fromkeys(("exponential_wait", "linear_wait", "interval_start", "interval_step"), FIRST),
    **dict.fromkeys(("max_backoff", "retry_backoff_max", "max_wait", "interval_max"), CAP),
    "retry_jitter": JITTER,
    **dict.fromkeys(("autoretry_for", "retry_exceptions", "retry_for", "retry_when"), ONLY),
    **dict.fromkeys(("throws", "dont_autoretry_for"), NOT_FOR),
}
RUNS = {
    **dict.fromkeys(
        ("time_limit", "soft_time_limit", "job_timeout", "task_timeout", "max_runtime", "timeout_s"), 'timeout="5m"'
    ),
    **dict.fromkeys(("queue_name", "routing_key", "queues"), 'queue="…"'),
    **dict.fromkeys(("task", "task_name", "actor_name", "kind", "id", "job_id", "title"), 'name="…"'),
    **dict.fromkeys(("on_failure", "on_error", "on_retry_exhausted", "dead_letter_queue"), "exhausted=a_function"),
    **dict.fromkeys(("bind", "pass_context"), CONTEXT),
}
TIMES = {
    **dict.fromkeys(("hour", "minute", "second", "day", "day_of_week", "month", "crontab"), '@app.cron("0 2 * * *")'),
    **dict.fromkeys(("days", "hours", "minutes", "seconds", "weeks", "run_every", "period"), '@app.every("5m")'),
}
LENGTHS = {
    "ttl": ("timeout", "expire", "expires", "expiry", "duration", "lock_timeout", "lease_for", "lock_at_most_for")
}
WAITS = ("blocking", "blocking_timeout", "acquire_timeout", "block", "wait_timeout")
SWEEPS = {
    **dict.fromkeys(("interval", "period", "run_every", "schedule", "poll_interval", "seconds", "minutes"), EVERY),
    **dict.fromkeys(("batch_size", "chunk_size", "batchsize", "page_size", "limit"), "batch=100"),
}

INSTEAD: Mapping[str, Mapping[str, str]] = {
    "a job": {
        **RETRIES,
        **RUNS,
        **dict.fromkeys(("rate_limit", "ratelimit", "throttle"), 'rate="10/s"'),
        **dict.fromkeys(("lock", "queueing_lock", "lock_key", "unique_key", "unique_opts", "singleton"), UNIQUE),
        **dict.fromkeys(
            ("concurrency", "max_instances", "max_concurrency", "concurrency_limit", "max_workers"), "limit=1"
        ),
        **dict.fromkeys(("concurrency_key", "partition_key", "group_key"), 'fair_by="an argument"'),
        **dict.fromkeys(("cron", "schedule", "periodic", "interval", "every", "run_every"), SCHEDULED),
        **dict.fromkeys(("delay", "countdown", "schedule_in", "enqueue_in", "defer_by"), LATER),
        **dict.fromkeys(("eta", "schedule_at", "run_at", "enqueue_at", "scheduled_at", "defer_until"), AT),
    },
    "using()": {
        **dict.fromkeys(("countdown", "schedule_in", "enqueue_in", "defer_by", "seconds", "after"), 'delay="5m"'),
        **dict.fromkeys(
            ("eta", "schedule_at", "enqueue_at", "scheduled_at", "at", "defer_until", "run_date"), "run_at=…"
        ),
        **dict.fromkeys(
            ("task_id", "job_id", "id", "lock", "queueing_lock", "lock_key", "unique_key", "unique_opts"), UNIQUE
        ),
        **dict.fromkeys(("queue_name", "routing_key"), 'queue="…"'),
        **dict.fromkeys(("max_retries", "retries", "attempts", "max_tries"), "max_attempts=…"),
        **dict.fromkeys(("metadata", "headers", "tags"), "meta={…}"),
        **dict.fromkeys(("conn", "connection", "session", "transaction", "db"), "tx=…"),
        **dict.fromkeys(("retry", "timeout", "time_limit", "job_timeout", "rate", "limit"), "it at @app.job(…)"),
        **dict.fromkeys(("args", "kwargs", "task_kwargs"), ".using(…).enqueue(…) with the arguments"),
    },
    "a schedule": {
        **RETRIES,
        **RUNS,
        **TIMES,
        **dict.fromkeys(("timezone", "time_zone", "zone"), 'tz="Europe/Berlin" of @app.cron'),
        **dict.fromkeys(("misfire_grace_time", "catchup", "start_deadline"), 'catch_up="1d"'),
        **dict.fromkeys(("coalesce",), 'missed="latest"'),
        **dict.fromkeys(("max_instances", "allow_overlap", "max_running_jobs", "limit"), 'overlap="skip"'),
        **dict.fromkeys(("next_run_time", "start_date", "start_time", "start_at"), "anchor=… of @app.every"),
        **dict.fromkeys(("lock", "lock_name", "singleton"), 'lease="postgres"'),
        **dict.fromkeys(("args", "kwargs"), "meta={…}, or the values in the function"),
        **dict.fromkeys(("max_jitter",), 'jitter="30s"'),
    },
    "a reconciler": {**RETRIES, **SWEEPS, "max_workers": "concurrency=10", "workers": "concurrency=10"},
    "a move": {**RETRIES, **SWEEPS},
    "a deletion": {**RETRIES, **SWEEPS},
    "a scan": {**SWEEPS, "max_workers": "concurrency=8", "workers": "concurrency=8", "time_limit": 'timeout="5m"'},
    "a table": {
        **dict.fromkeys(("pk", "primary_key", "id", "keys"), 'key="id"'),
        **dict.fromkeys(("status", "state_column", "status_column"), 'state="state"'),
        **dict.fromkeys(("updated_at", "modified_at", "timestamp"), 'changed_at="updated_at"'),
        **dict.fromkeys(("schema",), 'app.table("schema.table")'),
        **dict.fromkeys(("filter", "condition", "query"), 'where="…"'),
    },
    "a lease": {
        **{name: f'{option}="60s"' for option, names in LENGTHS.items() for name in names},
        **dict.fromkeys(WAITS, 'wait="10s"'),
    },
    "a worker": {
        **dict.fromkeys(
            ("max_workers", "num_workers", "workers", "threads", "worker_threads", "max_jobs", "prefetch"),
            "concurrency=50",
        ),
        "queue": 'queues="…"',
    },
    "a Retry": {
        **dict.fromkeys(
            ("attempts", "tries", "max_retries", "max_tries", "retries", "stop", "times"), "max_attempts=…"
        ),
        **dict.fromkeys(
            ("delay", "wait", "initial", "base", "backoff", "min_backoff", "interval", "countdown"), 'first="1s"'
        ),
        **dict.fromkeys(("multiplier", "exponential", "exp_base", "backoff_factor"), "factor=2"),
        **dict.fromkeys(("max_delay", "max_backoff", "max_wait", "maximum", "backoff_max"), 'cap="1m"'),
        **dict.fromkeys(("exceptions", "on", "retry_for", "retry_exceptions", "autoretry_for"), "retry_on=(…)"),
        **dict.fromkeys(("ignore", "throws", "unless"), "give_up_on=(…)"),
    },
    "an App": {
        **dict.fromkeys(("url", "dsn", "broker", "backend", "conninfo", "database", "connection"), "database_url=…"),
        **dict.fromkeys(("pool", "max_connections", "max_pool_size"), "pool_size=…"),
        **dict.fromkeys(("imports", "modules", "import_paths", "autodiscover"), 'include=["package.jobs"]'),
        **dict.fromkeys(("timezone", "tz"), "tz=… of each @app.cron"),
    },
}


ENQUEUE = "await job.enqueue(…), or job.enqueue_sync(…)"
METHODS: Mapping[str, Mapping[str, str]] = {
    "Job": {
        **dict.fromkeys(("delay", "send", "defer", "defer_async", "perform_async", "kiq", "push"), ENQUEUE),
        **dict.fromkeys(
            ("apply_async", "send_with_options", "configure", "set", "options", "s", "si", "enqueue_in", "enqueue_at"),
            "await job.using(delay=…, queue=…).enqueue(…)",
        ),
        **dict.fromkeys(("batch_defer", "insert_many", "map", "chunks"), "await job.enqueue_many([…])"),
        **dict.fromkeys(("schedule", "periodic"), SCHEDULED),
    },
    "App": {
        **dict.fromkeys(("task", "actor", "function", "shared_task"), "@app.job"),
        **dict.fromkeys(("periodic_task", "periodic", "scheduled_job", "add_periodic_task", "on_interval"), SCHEDULED),
        **dict.fromkeys(("add_job", "send_task", "enqueue_call", "defer", "insert"), 'await app.enqueue("name", …)'),
        **dict.fromkeys(("lock", "advisory_lock", "singleton"), 'async with app.lease("name"):'),
        **dict.fromkeys(("run_worker", "run_worker_async", "start", "run"), "async with app.worker():"),
        **dict.fromkeys(("autodiscover_tasks", "import_paths"), 'App(include=["package.jobs"])'),
    },
}


def instead(who: str, name: str) -> str | None:
    """What to write instead of this option of `who`; None when nothing is known."""
    return INSTEAD.get(who, {}).get(name)


def missing(thing: object, kind: str, name: str) -> Any:
    """For an attribute that `thing`, called `kind` here, does not have: raises AttributeError, as usual if no other library has it."""
    if name in METHODS[kind]:
        said = f"{type(thing).__name__!r} object has no attribute {name!r}; write {METHODS[kind][name]}"
        raise AttributeError(said, name=name, obj=thing)
    return object.__getattribute__(thing, name)  # raises what it raised before: a property may have failed
