"""Which statements store one job or many, and in which order: steps that `drive` runs on a connection of any kind.

A job with a unique key is inserted, or the live one with that key is found, or replaced. A window (`unique_for`) is taken first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from trueup.errors import ConfigError, DuplicateJob
from trueup.jobs.job import Draft
from trueup.store.db.load import Statements
from trueup.store.db.steps import Ask, Steps

ONE_STATEMENT = 500  # up to here a batch is one insert; beyond, it is streamed
STATEMENT_BYTES = 4 * 1024 * 1024  # of arguments, but for the last job's
IN_ORDER_BYTES = 16 * 1024 * 1024
IN_ORDER = 10_000  # unique keys are taken in their order, at most this many of a batch at a time
TRIES = 10  # a unique key's job may finish between "it exists" and "which one is it"; each try sees a newer state


@dataclass(frozen=True, slots=True)
class Stored:
    job_id: int
    created: bool


@dataclass(frozen=True, slots=True)
class StoredMany:
    created: int
    kept: int


class Inserting:
    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._clock = statements.clock
        self._aging = statements.aging

    def store(self, draft: Draft) -> Steps[Stored]:
        """Store a job, or find the live one with its unique key. Raises DuplicateJob when the draft says so."""
        if draft.unique_for is not None and draft.unique_key is not None:
            taken = yield from self._take_window(draft)
            if taken is not None:
                return taken
        stored = yield from self._insert_or_find(draft)
        if draft.unique_for is not None:
            new = stored.created or draft.on_conflict == "replace"
            verb = "jobs/name_window" if new else "jobs/free_window"
            yield self._ask(verb, kind=draft.kind, unique_key=draft.unique_key, job_id=stored.job_id)
        return stored

    def _take_window(self, draft: Draft) -> Steps[Stored | None]:
        assert draft.unique_key is not None
        assert draft.unique_for is not None
        for _ in range(TRIES):
            rows = yield self._ask(
                "jobs/take_window",
                kind=draft.kind,
                unique_key=draft.unique_key,
                window=draft.unique_for.total_seconds(),
            )
            if rows:
                return None
            rows = yield self._ask("jobs/find_window", kind=draft.kind, unique_key=draft.unique_key)
            if rows:
                job_id, state = rows[0]
                if draft.on_conflict == "raise" or (draft.on_conflict == "replace" and state != "queued"):
                    raise DuplicateJob(draft.kind, draft.unique_key, job_id, state)
                if draft.on_conflict == "replace":
                    if (replaced := (yield from self._replace(draft))) is not None:
                        return replaced
                    continue  # a worker has claimed it meanwhile
                return Stored(job_id, created=False)
        raise ConfigError(f"{draft.kind}: unique key {draft.unique_key!r} could not be taken in {TRIES} tries")

    def _insert_or_find(self, draft: Draft) -> Steps[Stored]:
        for _ in range(TRIES):
            rows = yield self.insert_one(draft)
            if rows:
                return Stored(rows[0][0], created=True)
            assert draft.unique_key is not None
            if draft.on_conflict == "replace":
                replaced = yield from self._replace(draft)
                if replaced is not None:
                    return replaced
            rows = yield self._ask("jobs/find_unique", kind=draft.kind, unique_key=draft.unique_key)
            if not rows:
                continue
            job_id, state = rows[0]
            if draft.on_conflict == "raise" or (draft.on_conflict == "replace" and state == "running"):
                raise DuplicateJob(draft.kind, draft.unique_key, job_id, state)
            if draft.on_conflict == "keep":
                return Stored(job_id, created=False)
        raise ConfigError(
            f"{draft.kind}: unique key {draft.unique_key!r} could not be settled in {TRIES} tries (a transaction with a fixed snapshot?)"
        )

    def _replace(self, draft: Draft) -> Steps[Stored | None]:
        rows = yield self._ask(
            "jobs/replace",
            kind=draft.kind,
            unique_key=draft.unique_key,
            args=draft.args,
            queue=draft.queue,
            lane=draft.lane,
            key=draft.key,
            priority=draft.priority,
            at=draft.run_at,
            delay=draft.delay.total_seconds(),
            max_attempts=draft.max_attempts,
            meta=draft.meta,
            aging=self._aging.total_seconds(),
        )
        return Stored(rows[0][0], created=False) if rows else None

    def store_many(self, template: Draft, drafts: Iterator[Draft]) -> Steps[StoredMany]:
        """The same for many, in statements of a bounded size."""
        created = asked = 0
        while some := _some(drafts, ONE_STATEMENT, STATEMENT_BYTES):
            if some[0].unique_key is not None:
                some = in_order([*some, *_some(drafts, IN_ORDER - len(some), IN_ORDER_BYTES)])
            ordered = iter(some)
            while batch := _some(ordered, ONE_STATEMENT, STATEMENT_BYTES):
                rows = yield self.insert(batch)
                created += len(rows)
                asked += len(batch)
                if template.on_conflict == "raise" and len(rows) < len(batch):
                    yield from self._raise_for_first_missing(batch, {row[2] for row in rows})
        return StoredMany(created, asked - created)

    def _raise_for_first_missing(self, batch: Sequence[Draft], stored: set[str | None]) -> Steps[None]:
        for draft in batch:
            if draft.unique_key in stored:
                stored.discard(draft.unique_key)  # a second item with this key was not stored
            elif draft.unique_key is not None:
                rows = yield self._ask("jobs/find_unique", kind=draft.kind, unique_key=draft.unique_key)
                job_id, state = rows[0] if rows else (0, "finished")
                raise DuplicateJob(draft.kind, draft.unique_key, job_id, state)

    def insert_one(self, draft: Draft) -> Ask:
        return self._ask(
            "jobs/enqueue_one",
            often=True,
            channel=self._statements.channel,
            kind=draft.kind,
            queue=draft.queue,
            lane=draft.lane,
            key=draft.key,
            priority=draft.priority,
            head_start=draft.priority * self._aging.total_seconds(),
            at=draft.run_at,
            delay=draft.delay.total_seconds(),
            args=draft.args,
            unique_key=draft.unique_key,
            max_attempts=draft.max_attempts,
            meta=draft.meta,
        )

    def insert(self, batch: Sequence[Draft], *, often: bool = False) -> Ask:
        metas = [draft.meta for draft in batch]
        return self._ask(
            "jobs/enqueue",
            often=often,
            channel=self._statements.channel,
            aging=self._aging.total_seconds(),
            kinds=[draft.kind for draft in batch],
            queues=[draft.queue for draft in batch],
            lanes=[draft.lane for draft in batch],
            keys=[draft.key for draft in batch],
            priorities=[draft.priority for draft in batch],
            ats=[draft.run_at for draft in batch],
            delays=[draft.delay.total_seconds() for draft in batch],
            args=[draft.args for draft in batch],
            unique_keys=[draft.unique_key for draft in batch],
            max_attempts=[draft.max_attempts for draft in batch],
            metas=metas if any(metas) else None,  # most jobs have none: a null array is padded with nulls
        )

    def _ask(self, statement: str, *, often: bool = False, **params: Any) -> Ask:
        return Ask(self._statements[statement], {"now": self._clock.now(), **params}, often)


def _some(drafts: Iterator[Draft], most: int, most_bytes: int) -> list[Draft]:
    """The next ones, until they are `most` or have `most_bytes`."""
    some: list[Draft] = []
    size = 0
    for draft in islice(drafts, most):
        some.append(draft)
        size += len(draft.args)
        if size >= most_bytes:
            break
    return some


def in_order(drafts: list[Draft]) -> list[Draft]:
    """Two transactions that take the same unique keys in another order would wait for each other."""
    return sorted(
        drafts, key=lambda draft: (draft.kind, draft.unique_key) if draft.unique_key is not None else ("", "")
    )


def first_of(drafts: Iterator[Draft]) -> tuple[list[Draft], list[Draft]]:
    """Those for one statement, and the next one if there is one."""
    return _some(drafts, ONE_STATEMENT, STATEMENT_BYTES), list(islice(drafts, 1))
