"""A declared job: the function, its parameters, retries and limits; and the ways to enqueue it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from trueup.backoff import JOB_RETRY, Retry, retry_policy
from trueup.building import BUILDING
from trueup.durations import Duration, Rate, duration_of
from trueup.errors import ConfigError, InvalidArguments
from trueup.instead import missing
from trueup.jobs.exhausted import OnExhausted
from trueup.jobs.handle import Enqueued, Handle
from trueup.jobs.job import ClaimedJob, Draft, OnConflict
from trueup.jobs.limits import Controls, Limit
from trueup.jobs.middleware import Middlewares, encode_meta
from trueup.jobs.names import checked_name
from trueup.jobs.options import Options, UniqueKey, checked
from trueup.options import advised, check_function, shown
from trueup.texts import fault_in_text

P = ParamSpec("P")
R = TypeVar("R")
Called = ParamSpec("Called")  # what the function takes, with its Context
Returns = TypeVar("Returns")  # what it returns: a coroutine, if it is asynchronous

ExecutorSource = Executor | Callable[[], Executor]  # an executor, or a function that makes one when a worker needs it


class Enqueuer(Protocol):
    """What a declared job needs of its App."""

    payload_limit: int
    middlewares: Middlewares

    async def put(self, draft: Draft, tx: Any) -> Handle[Any]: ...
    def put_sync(self, draft: Draft, tx: Any) -> Handle[Any]: ...
    async def put_many(self, template: Draft, drafts: Iterable[Draft], tx: Any) -> Enqueued: ...
    def put_many_sync(self, template: Draft, drafts: Iterable[Draft], tx: Any) -> Enqueued: ...


class Call(Generic[P]):
    """The arguments of one run, as `job.args(…)` takes them. They are checked where they are stored."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs


class Job(Generic[P, R]):
    """A declared job. Calling it calls the function; `enqueue` and similar methods store a run of it."""

    def __init__(
        self,
        enqueuer: Enqueuer,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        queue: str = "default",
        retry: Retry | None = None,
        timeout: Duration | None = None,
        priority: int = 0,
        limit: int | Limit | None = None,
        rate: str | Rate | None = None,
        fair_by: str | None = None,
        unique: UniqueKey | None = None,
        unique_for: Duration | None = None,
        on_conflict: OnConflict = "keep",
        executor: ExecutorSource | None = None,
        exhausted: OnExhausted | None = None,
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        with BUILDING:
            from trueup.jobs.arguments import Arguments  # imported here: programs that declare no job need no pydantic
            from trueup.jobs.result_shape import ResultShape
        check_function("@app.job", function)
        self.kind = checked_name("job name", _function_name(function) if name is None else name)
        self.queue = checked_name("queue", queue)
        self.function: Callable[..., Any] = function
        self.is_async = iscoroutinefunction(function)
        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise ConfigError(f"job {self.kind!r}: its function yields, so calling it runs nothing; a job returns")
        self.retry = retry_policy(f"job {self.kind!r}: retry", retry, JOB_RETRY)
        self.timeout = None if timeout is None else _positive(f"job {self.kind!r}: timeout", timeout)
        self.arguments = Arguments(self.kind, function, local_names)
        self.returned = ResultShape(self.kind, self.arguments.returns)
        self.controls = Controls.parse(self.kind, limit, rate, fair_by, self.arguments.names)
        self.lane = self.controls.lane(self.kind, self.queue)
        self.executor = executor
        if executor is not None:
            _check_executor(f"job {self.kind!r}", executor, plain=not self.is_async and not self.arguments.context)
        if exhausted is not None and not callable(exhausted):
            raise ConfigError(
                f"job {self.kind!r}: exhausted= takes a function of one argument, the Exhausted job, not {exhausted!r:.60}"
            )
        self.exhausted: Any = exhausted
        self.exhausted_is_async = iscoroutinefunction(exhausted)
        self._enqueuer = enqueuer
        self._defaults = checked(
            self,
            Options(priority=priority, unique=unique, unique_for=self._unique_for(unique_for), on_conflict=on_conflict),
            declared=True,
        )
        self.__wrapped__: Callable[..., Any] = function
        self.__name__ = getattr(function, "__name__", self.kind)
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<Job {self.kind!r} queue={self.queue!r}>"

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name):
            return missing(self, "Job", name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function itself, here and now: no job is made."""
        return self.function(*args, **kwargs)

    @advised("using()")
    def using(
        self,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        unique: UniqueKey | None = None,
        unique_for: Duration | None = None,
        on_conflict: OnConflict | None = None,
        max_attempts: int | None = None,
        meta: Mapping[str, Any] | None = None,
        tx: Any = None,
    ) -> Request[P, R]:
        """Set options for one enqueue.

        `tx` is your open transaction, as a connection of psycopg or asyncpg or a SQLAlchemy session or connection: the job
        exists if and only if it commits.
        `unique` keeps one live job per key (text, or a function of the arguments); `on_conflict` says what happens to the
        second: "keep" the first and return it, "replace" it while it is queued, or "raise" DuplicateJob. With `unique_for`
        the key stays taken that long, even after its job has finished.
        `meta` travels with the job beside its arguments: names and values that JSON can hold, for middleware and `ctx.meta`.
        """
        given: dict[str, Any] = {
            "delay": None if delay is None else duration_of(f"job {self.kind!r}: delay", delay),
            "run_at": run_at,
            "priority": priority,
            "queue": queue,
            "unique": unique,
            "unique_for": self._unique_for(unique_for),
            "on_conflict": on_conflict,
            "max_attempts": max_attempts,
            "meta": None if meta is None else encode_meta(f"job {self.kind!r}", meta),
            "tx": tx,
        }
        options = replace(self._defaults, **{name: value for name, value in given.items() if value is not None})
        return Request(self, checked(self, options))

    def _unique_for(self, duration: Duration | None) -> timedelta | None:
        return None if duration is None else _positive(f"job {self.kind!r}: unique_for", duration)

    @cached_property
    def _plain(self) -> Request[P, R]:
        return Request(self, self._defaults)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a run. Raises InvalidArguments when they do not fit the function, before anything is sent."""
        return await self._plain.enqueue(*args, **kwargs)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """`enqueue` for code without an event loop."""
        return self._plain.enqueue_sync(*args, **kwargs)

    async def enqueue_many(self, calls: Iterable[Call[P] | Sequence[Any] | Mapping[str, Any]]) -> Enqueued:
        """Store a run per item: all of them or none, in bounded memory.

        An item is `job.args(…)`, which type checkers compare with the function, a tuple of positional arguments or a dict of
        named ones.
        """
        return await self._plain.enqueue_many(calls)

    def enqueue_many_sync(self, calls: Iterable[Call[P] | Sequence[Any] | Mapping[str, Any]]) -> Enqueued:
        return self._plain.enqueue_many_sync(calls)

    def args(self, *args: P.args, **kwargs: P.kwargs) -> Call[P]:
        """The arguments of one run: an item for `enqueue_many`."""
        return Call(args, kwargs)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Draft:
        """A run as a value, not stored yet: for `then=[…]` lists."""
        return self._plain.call(*args, **kwargs)


class DeclaredJob(Job[P, R], Generic[P, R, Called, Returns]):
    """A job to a type checker: called directly, it takes and returns what its function does, a leading Context included."""

    def __call__(self, *args: Called.args, **kwargs: Called.kwargs) -> Returns:  # type: ignore[override]
        """Call the function itself, here and now: no job is made."""
        returned: Returns = self.function(*args, **kwargs)
        return returned


class Rereadable:
    """Jobs made from the caller's items, again each time they are iterated."""

    def __init__(self, made: Callable[[], Iterator[Draft]]) -> None:
        self._made = made

    def __iter__(self) -> Iterator[Draft]:
        return self._made()


class Request(Generic[P, R]):
    """A job with options: what `using(…)` returns."""

    def __init__(self, job: Job[P, R], options: Options) -> None:
        self._job = job
        self._options = options

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        draft, tx, enqueuer = self._draft(args, kwargs), self._options.tx, self._job._enqueuer
        if not enqueuer.middlewares.enqueue:
            return await enqueuer.put(draft, tx)
        with enqueuer.middlewares.enqueueing(draft, "enqueue") as (draft, call):
            handle = await enqueuer.put(draft, tx)
            call.job_id, call.created = handle.id, int(handle.created)
        return handle

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        draft, tx, enqueuer = self._draft(args, kwargs), self._options.tx, self._job._enqueuer
        if not enqueuer.middlewares.enqueue:
            return enqueuer.put_sync(draft, tx)
        with enqueuer.middlewares.enqueueing(draft, "enqueue") as (draft, call):
            handle = enqueuer.put_sync(draft, tx)
            call.job_id, call.created = handle.id, int(handle.created)
        return handle

    async def enqueue_many(self, calls: Iterable[Call[P] | Sequence[Any] | Mapping[str, Any]]) -> Enqueued:
        template, tx, enqueuer = self._bulk_template(), self._options.tx, self._job._enqueuer
        if not enqueuer.middlewares.enqueue:
            return await enqueuer.put_many(template, self._all_of(template, calls), tx)
        with enqueuer.middlewares.enqueueing(template, "enqueue_many") as (template, call):
            enqueued = await enqueuer.put_many(template, self._all_of(template, calls), tx)
            call.created = enqueued.created
        return enqueued

    def enqueue_many_sync(self, calls: Iterable[Call[P] | Sequence[Any] | Mapping[str, Any]]) -> Enqueued:
        template, tx, enqueuer = self._bulk_template(), self._options.tx, self._job._enqueuer
        if not enqueuer.middlewares.enqueue:
            return enqueuer.put_many_sync(template, self._all_of(template, calls), tx)
        with enqueuer.middlewares.enqueueing(template, "enqueue_many") as (template, call):
            enqueued = enqueuer.put_many_sync(template, self._all_of(template, calls), tx)
            call.created = enqueued.created
        return enqueued

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Draft:
        if self._options.tx is not None:
            raise ConfigError("call() does not store the job; pass tx= to the call that stores it")
        draft, middlewares = self._draft(args, kwargs), self._job._enqueuer.middlewares
        if middlewares.enqueue:
            with middlewares.enqueueing(draft, "call") as (draft, _):
                pass
        return draft

    def _draft(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Draft:
        return self._filled(self._template, args, kwargs)

    def _all_of(self, template: Draft, calls: Iterable[Call[P] | Sequence[Any] | Mapping[str, Any]]) -> Iterable[Draft]:
        """Can be iterated more than once if `calls` is a collection: another iterable may be empty the second time."""
        drafts = partial(self._drafts, template, calls)
        return Rereadable(drafts) if isinstance(calls, Collection) else drafts()

    def _drafts(self, template: Draft, calls: Iterable[Call[P] | Sequence[Any] | Mapping[str, Any]]) -> Iterator[Draft]:
        for position, given in enumerate(calls):
            try:
                if isinstance(given, Call):
                    yield self._filled(template, given.args, given.kwargs)
                elif isinstance(given, Mapping):
                    yield self._filled(template, (), given)
                elif isinstance(given, Sequence) and not isinstance(given, str | bytes | Draft):
                    yield self._filled(template, given, {})
                else:
                    made = "what call(…) makes; use args(…)" if isinstance(given, Draft) else f"{given!r:.60}"
                    raise InvalidArguments(
                        f"{self._job.kind}: an item must be a tuple or a dict of arguments, or args(…), not {made}"
                    )
            except InvalidArguments as error:
                raise InvalidArguments(f"item {position}: {error}") from None

    def _bulk_template(self) -> Draft:
        template = self._template
        if template.on_conflict == "replace" or template.unique_for is not None:
            raise ConfigError(f"{self._job.kind}: enqueue_many takes on_conflict 'keep' or 'raise' and no unique_for=")
        return template

    @cached_property
    def _template(self) -> Draft:
        job, options = self._job, self._options
        queue = options.queue or job.queue
        return Draft(
            kind=job.kind,
            queue=queue,
            lane=job.controls.lane(job.kind, queue),
            args="{}",
            max_attempts=options.max_attempts or job.retry.max_attempts,
            priority=options.priority,
            run_at=options.run_at,
            delay=options.delay,
            unique_for=options.unique_for,
            on_conflict=options.on_conflict,
            meta=options.meta,
            own_meta=options.meta,
        )

    def _filled(self, template: Draft, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Draft:
        job = self._job
        values = job.arguments.bind(args, kwargs)
        stored = job.arguments.dump(values, job._enqueuer.payload_limit)
        values = job.arguments.defaults | values  # a default gives the same tenant and key, omitted or explicit
        key, unique_key = fair_key(job.controls, values), self._unique_key(values)
        return template._replace(args=stored, key=key, unique_key=unique_key)

    def _unique_key(self, values: Mapping[str, Any]) -> str | None:
        unique = self._options.unique
        key = unique(**values) if callable(unique) else unique
        if key is not None and (not isinstance(key, str) or not 1 <= len(key) <= 500 or fault_in_text(key, "")):
            raise InvalidArguments(f"{self._job.kind}: unique= must give 1 to 500 characters of text, not {key!r:.60}")
        return key


def fair_key(controls: Controls, values: Mapping[str, Any]) -> str:
    """The fairness key of a job: its fair_by argument as text."""
    return "" if controls.fair_by is None else str(values[controls.fair_by])[:200]


def stored_key(job: Job[Any, Any], claimed: ClaimedJob) -> str:
    """The fair key of a job that was enqueued before its kind had one."""
    return fair_key(job.controls, job.arguments.defaults | job.arguments.by_name(claimed.args))


def _function_name(function: Any) -> str:
    name: str | None = getattr(function, "__name__", None)
    if name is None:
        raise ConfigError(f"@app.job: the function {shown(function)} has no name; give name=")
    return name


def _check_executor(who: str, executor: object, *, plain: bool) -> None:
    """Raises ConfigError unless it is an executor and the function is plain: neither async nor with a Context."""
    if not isinstance(executor, Executor) and not callable(executor):
        raise ConfigError(f"{who}: executor= takes an Executor or a function that makes one, not {executor!r:.60}")
    if type(executor).__module__ == "distributed.cfexecutor":
        # It runs equal calls once, and waits for its scheduler on our loop.
        raise ConfigError(
            f"{who}: executor= cannot take Client.get_executor(); pass trueup.integrations.dask.Dask(address)"
        )
    if not plain:
        raise ConfigError(f"{who}: executor= takes a plain function without a Context; it may run in another process")


def _positive(what: str, duration: Duration) -> timedelta:
    parsed = duration_of(what, duration)
    if parsed <= timedelta():
        raise ConfigError(f"{what}: must be longer than 0")
    return parsed
