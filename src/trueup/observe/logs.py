"""Events as log records: a text that says what happened, and the facts as fields.

Each event becomes one record on the standard logger `trueup.<noun>` (`trueup.job`, `trueup.worker`, …). Its facts are plain
attributes of the record, as `extra=` makes them: that is what JSON formatters for `logging` write out as fields of their
own and what structlog's `ExtraAdder` copies, without being told anything about trueup, and what `%(job_id)s` finds. The
event's own name is `event_name`, because structlog keeps the message under `event`.

Formatters that know nothing of fields show the message alone, so that has the facts, too: `job buried: job_id=19 kind=send …`.
trueup's own lines have them as fields, beside the constant text.

A record of a failure has the exception as `exc_info`, with the handler's traceback: formatters show it below the message, and
error trackers such as Sentry group by it.

The library only ever writes to its own logger. An application that does not configure logging sees warnings and errors on
standard error, by `logging`'s handler of last resort: a worker that fails is never silent.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from logging import DEBUG, ERROR, INFO, WARNING
from types import MappingProxyType
from typing import Any, NamedTuple

from trueup import events
from trueup.events import Event, Events
from trueup.jobs.failure import traceback_text
from trueup.observe.printable import printable
from trueup.texts import clean_fact

LOGGER = "trueup"


class Entry(NamedTuple):
    level: int
    message: str


ENTRIES: Mapping[type[Event], Entry] = MappingProxyType(
    {
        events.JobsEnqueued: Entry(DEBUG, "jobs enqueued"),
        events.JobsClaimed: Entry(DEBUG, "jobs claimed"),
        events.JobStarted: Entry(DEBUG, "job started"),
        events.JobCompleted: Entry(DEBUG, "job completed"),
        events.JobRetried: Entry(WARNING, "job retried"),
        events.JobSnoozed: Entry(INFO, "job snoozed"),
        events.JobReleased: Entry(INFO, "job released"),
        events.JobDeferred: Entry(ERROR, "job's exhausted= failed"),
        events.JobBuried: Entry(ERROR, "job buried"),
        events.JobDropped: Entry(INFO, "job dropped"),
        events.JobRescued: Entry(WARNING, "job rescued"),
        events.JobFinishRefused: Entry(WARNING, "job finish refused"),
        events.ExecutorBroken: Entry(ERROR, "executor broken"),
        events.JobClaimLost: Entry(WARNING, "job claim lost"),
        events.JobsCancelled: Entry(INFO, "jobs cancelled"),
        events.JobsRevived: Entry(INFO, "jobs revived"),
        events.JobsDiscarded: Entry(INFO, "jobs discarded"),
        events.JobsUnserved: Entry(WARNING, "no running worker runs this kind"),
        events.JobResultDropped: Entry(WARNING, "job result dropped"),
        events.JobFailedAfterDone: Entry(ERROR, "job failed after it was done"),
        events.ModuleDeclared: Entry(INFO, "module declared"),
        events.WorkerStarted: Entry(INFO, "worker started"),
        events.WorkerProcessEnded: Entry(WARNING, "worker process ended"),
        events.WorkersReloaded: Entry(INFO, "files changed, workers restart"),
        events.WorkerStopping: Entry(INFO, "worker stopping"),
        events.WorkerStopped: Entry(INFO, "worker stopped"),
        events.WorkerLeaseLost: Entry(ERROR, "worker lost its lease"),
        events.WorkerExpired: Entry(WARNING, "worker expired"),
        events.RenewalFailed: Entry(WARNING, "lease not renewed"),
        events.LoopBlocked: Entry(WARNING, "event loop blocked"),
        events.DatabaseLost: Entry(WARNING, "database lost"),
        events.DatabaseRestored: Entry(INFO, "database restored"),
        events.ConnectionAwaited: Entry(DEBUG, "waited for a connection"),
        events.StatementTimedOut: Entry(WARNING, "statement timed out"),
        events.ListenUnavailable: Entry(WARNING, "listen unavailable"),
        events.ListenRestored: Entry(INFO, "listen restored"),
        events.NotificationIgnored: Entry(DEBUG, "notification ignored"),
        events.LeaseAcquired: Entry(DEBUG, "lease acquired"),
        events.LeaseGrantedOpenly: Entry(WARNING, "lease granted without Redis"),
        events.LeaseLost: Entry(WARNING, "lease lost"),
        events.LeaseNotReleased: Entry(WARNING, "lease not given back"),
        events.DuplicateWindowShort: Entry(WARNING, "NATS stream forgets ids too soon: messages can be in it twice"),
        events.RunPostponed: Entry(WARNING, "run waits for its lease"),
        events.RunHandledElsewhere: Entry(INFO, "another instance is handling it"),
        events.TicksDecided: Entry(DEBUG, "ticks decided"),
        events.ScheduleChanged: Entry(INFO, "schedule changed"),
        events.ScheduleUndeclared: Entry(WARNING, "no running worker declares this schedule"),
        events.ScheduleRetired: Entry(WARNING, "schedule retired, its service no longer declares it"),
        events.ScheduleAhead: Entry(ERROR, "schedule is ahead of the clock"),
        events.ScheduleRefused: Entry(ERROR, "schedule refused, its ticks wait"),
        events.ScheduleUnreadable: Entry(WARNING, "schedule unreadable"),
        events.RowsClaimed: Entry(DEBUG, "rows claimed"),
        events.RowChanged: Entry(DEBUG, "row changed"),
        events.RowUnchanged: Entry(DEBUG, "row unchanged"),
        events.RowConflict: Entry(INFO, "row changed by another transaction"),
        events.RowUndone: Entry(WARNING, "outcome undone by a trigger"),
        events.RowRetried: Entry(WARNING, "row failed, will be tried again"),
        events.RowQuarantined: Entry(ERROR, "row quarantined"),
        events.RowReleased: Entry(INFO, "row released"),
        events.RowClaimLost: Entry(WARNING, "row claim lost"),
        events.RowProposed: Entry(INFO, "row outcome proposed"),
        events.RowsFreed: Entry(INFO, "rows freed from quarantine"),
        events.SweepCompleted: Entry(DEBUG, "sweep completed"),
        events.SweepRefused: Entry(ERROR, "sweep refused"),
        events.SweepFailed: Entry(ERROR, "sweep failed"),
        events.ReconcilerDeclared: Entry(DEBUG, "reconciler declared"),
        events.ReconcilerPaused: Entry(WARNING, "reconciler paused"),
        events.ReconcilerResumed: Entry(INFO, "reconciler resumed"),
        events.IndexMissing: Entry(WARNING, "index missing"),
        events.NaiveTimestamp: Entry(WARNING, "column without time zone is taken as UTC"),
        events.ScanCompleted: Entry(INFO, "scan completed"),
        events.ScanItemFailed: Entry(WARNING, "scan item failed"),
        events.DowntimeFound: Entry(WARNING, "no worker was alive"),
        events.AlertRaised: Entry(ERROR, "alert raised"),
        events.AlertResolved: Entry(INFO, "alert resolved"),
        events.ServiceFailed: Entry(ERROR, "service failed"),
        events.HistoryDayCreated: Entry(DEBUG, "history day created"),
        events.HistoryDayDropped: Entry(INFO, "history day dropped"),
        events.MigrationApplied: Entry(INFO, "migration applied"),
        events.MigrationWaits: Entry(WARNING, "migration waits for a lock"),
    }
)


class Message(str):
    """The text of an event with its facts, for formatters that show nothing else; `constant` is the text without them."""

    constant: str

    @classmethod
    def of(cls, constant: str, facts: Mapping[str, Any]) -> Message:
        shown = " ".join(f"{name}={_shown(value)}" for name, value in facts.items() if name != "event_name")
        message = cls(f"{constant}: {shown}" if shown else constant)
        message.constant = constant
        return message


def _shown(value: object) -> str:
    text = printable(str(value))
    return text if text and " " not in text else repr(text)


class Logs:
    """The subscription of a logger; `attach_logs` makes it.

    Only classes whose level is enabled are subscribed to, so that no event per job is built for a log that drops it.
    `logging` does not tell when a level is changed, so it is looked at again by `set_level`, by `refresh`, and whenever the
    App is opened or a worker is made or starts: an application may configure logging after its App was made.
    """

    def __init__(self, events: Events, logger: logging.Logger) -> None:
        self._events = events
        self._logger = logger
        self._ends: dict[type[Event], Callable[[], None]] = {}

    def set_level(self, level: int | str) -> None:
        """Set the logger's level, and listen to what it lets through."""
        self._logger.setLevel(level.upper() if isinstance(level, str) else level)
        self.refresh()

    def refresh(self) -> None:
        """Listen to exactly the events whose level is enabled now."""
        for cls, entry in ENTRIES.items():
            enabled = cls is events.WorkerStarted or self._child(cls).isEnabledFor(entry.level)
            if enabled and cls not in self._ends:
                self._ends[cls] = self._events.subscribe(self._write, cls)
            elif not enabled and cls in self._ends:
                self._ends.pop(cls)()

    def detach(self) -> None:
        """Stop listening."""
        while self._ends:
            self._ends.popitem()[1]()

    def _child(self, cls: type[Event]) -> logging.Logger:
        return self._logger.getChild(cls.name.partition(".")[0])

    def _write(self, event: Event) -> None:
        if isinstance(event, events.WorkerStarted):
            self.refresh()
        level, message = ENTRIES[type(event)]
        logger = self._child(type(event))
        if logger.isEnabledFor(level):
            extra = facts(event)
            record = logger.makeRecord(
                logger.name, level, __file__, 0, Message.of(message, extra), (), event.exc_info, "write", extra
            )
            if event.exc_info is not None:
                # What formatters show, unless they make their own of `exc_info`: bounded, and with secrets masked.
                record.exc_text = traceback_text(event.exc_info[1], event.exc_info[2]) or None
            logger.handle(record)


def attach_logs(events: Events, logger: logging.Logger | None = None) -> Logs:
    """Write the events to a logger, `trueup` unless another is given. Attaching twice writes everything twice."""
    logs = Logs(events, logger or logging.getLogger(LOGGER))
    logs.refresh()
    return logs


def facts(event: Event) -> dict[str, Any]:
    """The event's fields by name, secrets masked, and its name as `event_name`."""
    values = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    return {"event_name": event.name, **{name: clean_fact(value) for name, value in values.items()}}
