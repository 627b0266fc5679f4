"""Every option of every declaration, given a value of the wrong type: one ConfigError that names the option and the value."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from functools import partial
from typing import Any, get_type_hints

import pytest

from trueup import Again, App, Limit, Rate, Retry, Snooze
from trueup.app.declared import ScheduleOptions
from trueup.config.settings import SETTINGS
from trueup.errors import ConfigError
from trueup.instead import INSTEAD, METHODS
from trueup.jobs.options import Options
from trueup.reconcile.purge import PurgeOptions
from trueup.reconcile.reconciler import ReconcileOptions


class Thing:
    def __repr__(self) -> str:
        return "<a thing>"


NOWHERE = "postgresql://someone@127.0.0.1:1/nothing"
WRONG: dict[str, Any] = {
    "number": 7,
    "negative": -7,
    "huge": 2**70,  # no integer of PostgreSQL's
    "float": 1.5,
    "bool": True,
    "text": "no such! thing",
    "empty": "",
    "bytes": b"x",
    "list": ["x"],
    "nothing": [],
    "mapping": {"x": 1},
    "object": Thing(),
    "callable": Thing,
}
NUMBERS = {"number", "negative"}
TEXTS = {"text", "empty"}
NAME = set[str]()
DURATION = set[str]()
WHOLE = {"number"}
BOOL = {"bool"}
FUNCTION = {"callable"}
COLUMN = {"text"}  # any text may be the name of a column

# The labels of those values that the option takes.
JOB = {
    "name": NAME,
    "queue": NAME,
    "retry": NAME,
    "timeout": DURATION,
    "priority": NUMBERS,
    "limit": WHOLE,
    "rate": NAME,
    "fair_by": NAME,
    "unique": {"text", "callable"},
    "unique_for": DURATION,
    "on_conflict": NAME,
    "executor": FUNCTION,
    "exhausted": FUNCTION,
}
SCHEDULE = {
    "missed": NAME,
    "catch_up": DURATION,
    "grace": DURATION,
    "overlap": NAME,
    "most_queued": WHOLE,
    "jitter": DURATION,
    "pause_after": WHOLE,
    "name": NAME,
    "queue": NAME,
    "retry": NAME,
    "timeout": DURATION,
    "priority": NUMBERS,
    "exhausted": FUNCTION,
    "meta": {"mapping"},
    "lease": NAME,
    "lease_ttl": DURATION,
    "lease_step": DURATION,
    "lease_key": {*NUMBERS},
}
SELECTION = {"stale_for": DURATION, "due_at": COLUMN}
PURGE = {
    "name": NAME,
    "every": DURATION,
    "batch": WHOLE,
    "rate": NAME,
    "max_fraction": NAME,
    "run_at_start": BOOL,
    "deadline": DURATION,
    "retry": NAME,
}
RECONCILE = {
    "name": NAME,
    "every": DURATION,
    "batch": WHOLE,
    "concurrency": WHOLE,
    "claim": NAME,
    "lease_for": DURATION,
    "retry": NAME,
    "failed": FUNCTION,
    "exhausted": FUNCTION,
    "rate": NAME,
    "canary": NAME,
    "revisit": DURATION,
    "run_at_start": BOOL,
    "deadline": DURATION,
    "timeout": DURATION,
    "pause_after": WHOLE,
    "pause_for": DURATION,
    "pause_by": {"text", "callable"},
    "pause_on": NAME,
    "mode": NAME,
}
STATE = {*NUMBERS, *TEXTS, "huge"}
SCAN = {"name": NAME, "every": DURATION, "concurrency": WHOLE, "timeout": DURATION, "run_at_start": BOOL}
TABLE = {
    "key": {"text", "list"},
    "state": COLUMN,
    "changed_at": COLUMN,
    "version": COLUMN,
    "lease_columns": NAME,
    "where": {"text"},
}
USING = {
    **{option: JOB[option] for option in ("queue", "priority", "unique", "unique_for", "on_conflict")},
    "delay": DURATION,
    "run_at": NAME,
    "max_attempts": WHOLE,
    "meta": {"mapping"},
}
LEASE = {"ttl": DURATION, "wait": DURATION, "backend": NAME, "key": NAME}
RETRY = {
    "max_attempts": WHOLE,
    "first": DURATION,
    "factor": {"number", "huge", "float"},
    "cap": DURATION,
    "jitter": BOOL,
    "retry_on": NAME,
    "give_up_on": NAME,
}


def job(options: dict[str, Any]) -> None:
    @App().job(**({"unique": "key"} if "unique_for" in options else {}), **options)
    def declared(x: int = 1) -> None: ...


def using(options: dict[str, Any]) -> None:
    @App().job
    def declared(x: int = 1) -> None: ...

    declared.using(**({"unique": "key"} if "unique_for" in options else {}), **options)


def cron(options: dict[str, Any]) -> None:
    lease = {"lease": "advisory"} if any(name.startswith("lease_") for name in options) else {}

    @App().cron(**{"expr": "0 3 * * *", **lease, **options})
    def declared() -> None: ...


def every(options: dict[str, Any]) -> None:
    lease = {"lease": "advisory"} if any(name.startswith("lease_") for name in options) else {}

    @App().every(**{"interval": "1h", **lease, **options})
    def declared() -> None: ...


def table() -> Any:
    return App().table("orders", key="id", state="state", changed_at="changed_at")


def reconcile(options: dict[str, Any]) -> None:
    states = [options.pop("states")] if "states" in options else ["paid"]

    @table().reconcile(*states, **options)
    def declared(row: Any) -> None: ...


def move(options: dict[str, Any]) -> None:
    states = [options.pop("states")] if "states" in options else ["paid"]
    given = {} if "due_at" in options else {"stale_for": "1h"}
    table().move(*states, **{"to": "old", **given, **options})


def delete(options: dict[str, Any]) -> None:
    given = {} if "due_at" in options else {"stale_for": "1h"}
    table().delete("paid", **{**given, **options})


def scan(options: dict[str, Any]) -> None:
    @App().scan(**{"name": "files", "every": "1m", **options})
    async def declared(cursor: Any) -> Any:
        yield 1, 2


def described(options: dict[str, Any]) -> None:
    App().table(**{"table": "orders", "key": "id", **options})


NAMED = {"states": "state", "tz": "time zone"}  # as errors call them

Declare = Callable[[dict[str, Any]], None]
DECLARATIONS: dict[str, tuple[Declare, dict[str, set[str]]]] = {
    "job": (job, JOB),
    "cron": (cron, {"expr": NAME, "tz": NAME, "dst": NAME, **SCHEDULE}),
    "every": (every, {"interval": DURATION, "anchor": NAME, **SCHEDULE}),
    "reconcile": (
        reconcile,
        {"states": STATE, **SELECTION, "order_by": COLUMN, "claimed_as": STATE, "working_state": STATE, **RECONCILE},
    ),
    "move": (move, {"states": STATE, "to": STATE, "set": {"mapping"}, **SELECTION, **PURGE}),
    "delete": (delete, {**SELECTION, **PURGE}),
    "scan": (scan, SCAN),
    "table": (described, {"table": {"text"}, **TABLE}),
    "Retry": (lambda options: void(Retry(**options)), RETRY),
    "Rate": (
        lambda options: void(Rate(**{"count": 1, "per": timedelta(seconds=1), **options})),
        {"count": WHOLE, "per": DURATION, "burst": NAME},
    ),
    "Limit": (lambda options: void(Limit(**{"total": 1, **options})), {"total": WHOLE, "per_key": WHOLE}),
    "App": (lambda options: void(App(**options)), {"clock": NAME}),
    "worker": (
        lambda options: void(App(NOWHERE).worker(**options)),
        {"queues": {"list", "mapping"}, "concurrency": WHOLE},
    ),
    "using": (using, USING),
    "lease": (lambda options: void(App(NOWHERE).lease("nightly", **options)), LEASE),
    "Snooze": (lambda options: void(Snooze(**options)), {"after": DURATION}),
    "Again": (lambda options: void(Again(**{"after": "1s", **options})), {"after": DURATION, "everybody": BOOL}),
}


def void(value: object) -> None: ...


EACH = [(declaration, option) for declaration, (_, options) in DECLARATIONS.items() for option in options]


@pytest.mark.parametrize(("declaration", "option"), EACH)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_value_of_the_wrong_type_is_refused_when_it_is_declared(declaration: str, option: str) -> None:
    declare, options = DECLARATIONS[declaration]
    accepted, refused = dict[str, Any](), dict[str, str]()
    for label, value in WRONG.items():
        try:
            declare({option: value})
        except ConfigError as error:
            refused[label] = str(error)
        else:
            accepted[label] = value
    for label, said in refused.items():
        assert NAMED.get(option, option) in said
        assert repr(WRONG[label]) in said
    assert accepted.keys() == options[option], f"accepted: {accepted}, refused: {refused}"


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: job({"retires": 3, "colour": 1}), "a job takes no colour, retires; it takes executor, .*, retry, "),
        (lambda: job({"priorty": 3}), r"a job takes no priorty; did you mean priority\?"),
        (lambda: cron({"zones": "UTC"}), "a schedule takes no zones; it takes .*, tz"),
        (lambda: every({"offset": "1m"}), "a schedule takes no offset; it takes anchor, "),
        (
            lambda: reconcile({"evry": "1m", "timout": "1s"}),
            "a reconciler takes no evry, timout; did you mean every, timeout",
        ),
        (lambda: move({"batches": 3}), r"a move takes no batches; did you mean batch\?"),
        (lambda: using({"dely": 3}), r"using\(\) takes no dely; did you mean delay\?"),
        (lambda: void(Retry(max_attempt=3)), r"a Retry takes no max_attempt; did you mean max_attempts\?"),
    ],
)
def test_an_unknown_option_is_refused_as_a_call_would_with_the_options_there_are(
    declare: Callable[[], None], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        declare()


# The options of other libraries, as their users would write them here.
ELSEWHERE: dict[str, dict[str, str]] = {
    "job": {
        "Celery": "max_retries default_retry_delay rate_limit time_limit soft_time_limit autoretry_for retry_backoff "
        "retry_backoff_max retry_jitter throws bind",
        "RQ": "job_timeout retries on_failure id",
        "Dramatiq": "actor_name queue_name max_retries min_backoff max_backoff retry_when throws time_limit",
        "Procrastinate": "lock queueing_lock pass_context",
        "River": "max_attempts unique_opts scheduled_at",
        "Huey": "retries retry_delay",
        "arq": "max_tries cron",
    },
    "using": {
        "Celery": "countdown eta task_id headers args kwargs retry",
        "RQ": "job_id job_timeout at",
        "Procrastinate": "schedule_in schedule_at lock queueing_lock task_kwargs",
        "River": "scheduled_at unique_opts max_retries tags",
        "arq": "defer_by defer_until",
    },
    "cron": {
        "APScheduler": "hour minute day_of_week timezone misfire_grace_time coalesce max_instances id args kwargs",
        "Celery": "crontab max_retries",
        "Airflow": "catchup retries",
    },
    "every": {"APScheduler": "seconds minutes hours start_date max_instances coalesce", "Celery": "run_every"},
    "reconcile": {"others": "interval batch_size chunk_size max_retries max_attempts workers"},
    "move": {"others": "interval batch_size max_attempts"},
    "delete": {"others": "interval batch_size limit"},
    "scan": {"others": "interval workers"},
    "table": {"others": "pk primary_key status updated_at schema filter"},
    "lease": {"redis": "timeout blocking blocking_timeout", "ShedLock": "lock_at_most_for"},
    "worker": {"Celery": "queue threads max_workers"},
    "Retry": {
        "tenacity": "stop wait multiplier",
        "RQ": "interval",
        "backoff": "max_tries",
        "Procrastinate": "retry_exceptions",
        "others": "tries delay max_delay exceptions",
    },
    "App": {"Celery": "broker backend timezone", "Procrastinate": "import_paths", "others": "url dsn"},
}


@pytest.mark.parametrize("declaration", ELSEWHERE)
def test_an_option_of_another_library_is_refused_with_what_to_write_instead(declaration: str) -> None:
    declare, _ = DECLARATIONS[declaration]
    for library, names in ELSEWHERE[declaration].items():
        for name in names.split():
            with pytest.raises((TypeError, ConfigError)) as refused:
                declare({name: 1})
            assert re.search(rf"\b{name}\b.*; write .*[=@(]", str(refused.value)), (library, name, refused.value)


def test_what_is_written_without_the_argument_it_replaces_says_so() -> None:
    with pytest.raises(TypeError, match=r'minutes; write @app\.every\("5m"\)$'):
        App().every(minutes=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r'hour, minute; write @app\.cron\("0 2 \* \* \*"\)$'):
        App().cron(hour=2, minute=0)  # type: ignore[call-arg]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in METHODS.items() for name in names])
def test_a_method_of_another_library_is_refused_with_what_to_write_instead(kind: str, name: str) -> None:
    app = App()
    things: dict[str, Any] = {"App": app, "Job": app.job(name="x")(lambda: None)}
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; write .*[@(]"):
        getattr(things[kind], name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing_like_it'$"):
        things[kind].nothing_like_it  # noqa: B018


def test_no_hint_is_for_an_option_that_there_is() -> None:
    known: dict[str, set[str]] = {
        "a job": {*JOB},
        "using()": {*USING},
        "a schedule": {*SCHEDULE, "expr", "tz", "dst", "interval", "anchor"},
        "a reconciler": {*RECONCILE},
        "a move": {*PURGE},
        "a deletion": {*PURGE},
        "a scan": {*SCAN},
        "a table": {*TABLE},
        "a lease": {*LEASE},
        "a worker": {"queues", "concurrency"},
        "a Retry": {*RETRY},
        "an App": {*SETTINGS},
    }
    assert {who: known[who] & hints.keys() for who, hints in INSTEAD.items()} == {who: set() for who in known}


def test_every_option_is_tried() -> None:
    assert {field.name for field in fields(Options)} - {"tx"} == set(USING)
    assert set(get_type_hints(ScheduleOptions)) == set(SCHEDULE)
    assert set(get_type_hints(ReconcileOptions)) == set(RECONCILE)
    assert set(get_type_hints(PurgeOptions)) == set(PURGE)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("label", ["object", "callable", "bytes"])
def test_a_setting_of_the_wrong_type_is_refused(name: str, label: str) -> None:
    with pytest.raises(ConfigError, match=name):
        App(**{name: WRONG[label]})


@App(NOWHERE).job(name="other")
def declared(x: int = 1) -> None: ...


NO_FUNCTIONS = {**WRONG, "job": declared, "partial": partial(void, 1), "classmethod": classmethod(void), "none": None}
DECORATORS: dict[str, Callable[[App], Any]] = {
    "@app.job": lambda app: app.job(queue="mail"),
    "@app.cron": lambda app: app.cron("0 3 * * *"),
    "@app.every": lambda app: app.every("1h"),
    "@app.every with a lease": lambda app: app.every("1h", lease="advisory"),
}


@pytest.mark.parametrize("what", NO_FUNCTIONS)
@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_decorator_on_no_function_says_so_by_its_own_name(decorator: str, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{decorator.partition(' ')[0]} decorates a function, not .*; [a-z@]"):
        DECORATORS[decorator](App(NOWHERE))(NO_FUNCTIONS[what])


@pytest.mark.parametrize("label", [label for label in WRONG if label != "callable"])
def test_job_given_no_function_says_so(label: str) -> None:
    with pytest.raises(ConfigError, match=r"@app\.job .*function"):
        App().job(WRONG[label])


@pytest.mark.parametrize(
    ("decorator", "said"),
    [
        (lambda: App(NOWHERE).cron, '"30 2 \\* \\* \\*" is needed'),
        (lambda: App(NOWHERE).every, 'write it like "10m"'),
        (lambda: table().reconcile, 'write @table.reconcile\\("a state", every="5m"\\)'),
    ],
    ids=["cron", "every", "reconcile"],
)
def test_a_decorator_without_its_parentheses_says_what_they_hold(decorator: Callable[[], Any], said: str) -> None:
    def function(row: Any) -> None: ...

    with pytest.raises(ConfigError, match=said):
        decorator()(function)


@pytest.mark.parametrize("declare", [job, cron, every, reconcile])
def test_a_lambda_without_a_name_is_asked_for_one(declare: Any) -> None:
    app = App(NOWHERE)
    decorators = {
        job: app.job(),
        cron: app.cron("0 3 * * *"),
        every: app.every("1h"),
        reconcile: table().reconcile("x"),
    }
    with pytest.raises(ConfigError, match="a lambda has no name; give name=, or write a def"):
        decorators[declare](lambda *given: None)
