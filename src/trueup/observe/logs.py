"""Events as log records: a text that says what happened, and the facts as fields.

Each event becomes one record on the standard logger `trueup.<noun>` (`trueup.job`, `trueup.worker`, …). Its facts are plain
attributes of the record, as `extra=` makes them: JSON formatters for `logging` write them as fields, structlog's `ExtraAdder`
copies them, and `%(job_id)s` finds them, all without configuration for trueup. The event's name is `event_name`, because
structlog keeps the message under `event`.

Formatters without fields show only the message, so it has the facts, too: `job buried: job_id=19 kind=send …`. trueup's own lines
have them as fields, beside the constant text.

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


class LogLine(NamedTuple):
    level: int
    message: str


ENTRIES: Mapping[type[Event], LogLine] = MappingProxyType(
    {
        events.JobsEnqueued: LogLine(DEBUG, "jobs enqueued"),
        events.JobsClaimed: LogLine(DEBUG, "jobs claimed"),
        events.JobStarted: LogLine(DEBUG, "job started"),
        events.JobCompleted: LogLine(DEBUG, "job completed"),
        events.JobRetried: LogLine(WARNING, "job retried"),
        events.JobSnoozed: LogLine(INFO, "job snoozed"),
        events.JobReleased: LogLine(INFO, "job released"),
        events.JobDeferred: LogLine(ERROR, "job's exhausted= failed"),
        events.JobBuried: LogLine(ERROR, "job buried"),
        events.JobDropped: LogLine(INFO, "job dropped"),
        events.JobRescued: LogLine(WARNING, "job rescued"),
        events.JobFinishRefused: LogLine(WARNING, "job finish refused"),
        events.ExecutorBroken: LogLine(ERROR, "executor broken"),
        events.JobClaimLost: LogLine(WARNING, "job claim lost"),
        events.JobsCancelled: LogLine(INFO, "jobs cancelled"),
        events.JobsRevived: LogLine(INFO, "jobs revived"),
        events.JobsDiscarded: LogLine(INFO, "jobs discarded"),
        events.JobsUnserved: LogLine(WARNING, "no running worker runs this kind"),
        events.JobResultDropped: LogLine(WARNING, "job result dropped"),
        events.JobFailedAfterDone: LogLine(ERROR, "job failed after it was done"),
        events.ModuleDeclared: LogLine(INFO, "module declared"),
        events.WorkerStarted: LogLine(INFO, "worker started"),
        events.WorkerProcessEnded: LogLine(WARNING, "worker process ended"),
        events.WorkersReloaded: LogLine(INFO, "files changed, restarting workers"),
        events.WorkerStopping: LogLine(INFO, "worker stopping"),
        events.WorkerStopped: LogLine(INFO, "worker stopped"),
        events.WorkerLeaseLost: LogLine(ERROR, "worker lost its lease"),
        events.WorkerExpired: LogLine(WARNING, "worker expired"),
        events.RenewalFailed: LogLine(WARNING, "lease not renewed"),
        events.LoopBlocked: LogLine(WARNING, "event loop blocked"),
        events.DatabaseLost: LogLine(WARNING, "database lost"),
        events.DatabaseRestored: LogLine(INFO, "database restored"),
        events.ConnectionAwaited: LogLine(DEBUG, "waited for a connection"),
        events.StatementTimedOut: LogLine(WARNING, "statement timed out"),
        events.ListenUnavailable: LogLine(WARNING, "listen unavailable"),
        events.ListenRestored: LogLine(INFO, "listen restored"),
        events.NotificationIgnored: LogLine(DEBUG, "notification ignored"),
        events.LeaseAcquired: LogLine(DEBUG, "lease acquired"),
        events.LeaseGrantedOpenly: LogLine(WARNING, "lease granted without Redis"),
        events.LeaseLost: LogLine(WARNING, "lease lost"),
        events.LeaseNotReleased: LogLine(WARNING, "lease not released"),
        events.DuplicateWindowShort: LogLine(WARNING, "NATS duplicate window too short: messages can be stored twice"),
        events.RunPostponed: LogLine(WARNING, "run waits for its lease"),
        events.RunHandledElsewhere: LogLine(INFO, "another instance is handling it"),
        events.TicksDecided: LogLine(DEBUG, "ticks decided"),
        events.ScheduleChanged: LogLine(INFO, "schedule changed"),
        events.ScheduleUndeclared: LogLine(WARNING, "no running worker declares this schedule"),
        events.ScheduleRetired: LogLine(WARNING, "schedule retired, its service no longer declares it"),
        events.ScheduleAhead: LogLine(ERROR, "schedule is ahead of the clock"),
        events.ScheduleRefused: LogLine(ERROR, "schedule refused, its ticks wait"),
        events.ScheduleUnreadable: LogLine(WARNING, "schedule unreadable"),
        events.RowsClaimed: LogLine(DEBUG, "rows claimed"),
        events.RowChanged: LogLine(DEBUG, "row changed"),
        events.RowUnchanged: LogLine(DEBUG, "row unchanged"),
        events.RowConflict: LogLine(INFO, "row changed by another transaction"),
        events.RowUndone: LogLine(WARNING, "outcome undone by a trigger"),
        events.RowRetried: LogLine(WARNING, "row failed, will be retried"),
        events.RowQuarantined: LogLine(ERROR, "row quarantined"),
        events.RowReleased: LogLine(INFO, "row released"),
        events.RowClaimLost: LogLine(WARNING, "row claim lost"),
        events.RowProposed: LogLine(INFO, "row outcome proposed"),
        events.RowsFreed: LogLine(INFO, "rows released from quarantine"),
        events.SweepCompleted: LogLine(DEBUG, "sweep completed"),
        events.SweepRefused: LogLine(ERROR, "sweep refused"),
        events.SweepFailed: LogLine(ERROR, "sweep failed"),
        events.ReconcilerDeclared: LogLine(DEBUG, "reconciler declared"),
        events.ReconcilerPaused: LogLine(WARNING, "reconciler paused"),
        events.ReconcilerResumed: LogLine(INFO, "reconciler resumed"),
        events.IndexMissing: LogLine(WARNING, "index missing"),
        events.NaiveTimestamp: LogLine(WARNING, "column without time zone is read as UTC"),
        events.ScanCompleted: LogLine(INFO, "scan completed"),
        events.ScanItemFailed: LogLine(WARNING, "scan item failed"),
        events.DowntimeFound: LogLine(WARNING, "no worker was alive"),
        events.AlertRaised: LogLine(ERROR, "alert raised"),
        events.AlertResolved: LogLine(INFO, "alert resolved"),
        events.ServiceFailed: LogLine(ERROR, "service failed"),
        events.HistoryDayCreated: LogLine(DEBUG, "history day created"),
        events.HistoryDayDropped: LogLine(INFO, "history day dropped"),
        events.MigrationApplied: LogLine(INFO, "migration applied"),
        events.MigrationWaits: LogLine(WARNING, "migration waits for a lock"),
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
    text = str(value)
    return text if text and text.isprintable() and " " not in text else printable(repr(text))


class Logs:
    """The subscription of a logger; `attach_logs` makes it.

    Only classes whose level is enabled are subscribed to, so that no event per job is built for a log that drops it. `logging`
    does not report a changed level, so it is read again by `set_level`, by `refresh`, and whenever the App is opened or a worker
    is made or starts: an application may configure logging after it made its App.
    """

    def __init__(self, events: Events, logger: logging.Logger) -> None:
        self._events = events
        self._logger = logger
        self._ends: dict[type[Event], Callable[[], None]] = {}

    def set_level(self, level: int | str) -> None:
        """Set the logger's level, and subscribe to the events that it enables."""
        self._logger.setLevel(level.upper() if isinstance(level, str) else level)
        self.refresh()

    def refresh(self) -> None:
        """Subscribe to exactly the events whose level is enabled now."""
        for cls, entry in ENTRIES.items():
            enabled = cls is events.WorkerStarted or self._child(cls).isEnabledFor(entry.level)
            if enabled and cls not in self._ends:
                self._ends[cls] = self._events.subscribe(self._write, cls)
            elif not enabled and cls in self._ends:
                self._ends.pop(cls)()

    def detach(self) -> None:
        """End the subscription."""
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
                # Formatters show this text unless they format `exc_info` themselves: it is bounded, and its secrets are masked.
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
