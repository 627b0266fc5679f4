"""Keeps the worker's lease, from a thread and a connection of its own.

States: *trusted* (renewed recently), *doubtful* (renewals fail, time is left), *lost* (refused by the database, or the local
deadline has passed). The database is the authority; the deadline in `Trust` only makes this process give up earlier than
anybody else may begin. A handler that blocks the event loop cannot stop this thread, an exhausted pool cannot starve it,
and while the loop is blocked the thread names the handler on its stack. When the database is slow or gone, renewals are
repeated until the trust is used up; the loop watches that deadline itself, in case this thread hangs in a dead connection.
Should everything fail, the lease simply expires and another worker rescues the jobs; the fence refuses our late finishes.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psycopg
from psycopg import Connection

from trueup import faults
from trueup.clock import elapsed
from trueup.errors import DatabaseUnavailable
from trueup.events import Events, LoopBlocked, RenewalFailed
from trueup.store.db.connect import RETRYABLE, give_up_aside
from trueup.store.db.pool import fetch_limited_sync
from trueup.store.store import Store
from trueup.texts import describe
from trueup.work.registration import Registration

RETRY_AFTER = 0.5  # seconds between tries while renewals fail
LOOK_EVERY = 0.25  # seconds between looks at the loop's pulse while jobs run


class Renewer:
    def __init__(
        self,
        store: Store,
        events: Events,
        *,
        lease_for: timedelta,
        renew_every: timedelta,
        blocked_after: timedelta,
        handlers: Callable[[], dict[CodeType, str]],
        on_lost: Callable[[Registration, str], None],
    ) -> None:
        self._store = store
        self._events = events
        self._lease_for = lease_for
        self._timeout = min(store.statement_timeout, lease_for / 3)  # so that there is time to try again
        self._renew_every = renew_every.total_seconds()
        self._blocked_after = blocked_after.total_seconds()
        self._handlers = handlers
        self._on_lost = on_lost
        self._registration: Registration | None = None
        self._connection: Connection[Any] | None = None
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._pulse: float | None = None
        self._watched = False
        self._blocked = False
        self._tried_at = elapsed()
        self.reached = True  # whether the last renewal got an answer
        self.stopping = False

    def start(self) -> None:
        """Called on the event loop's thread, which is then the one watched."""
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._run, name="trueup renewer", daemon=True)
        self._thread.start()

    def keep(self, registration: Registration) -> None:
        """Renew this registration from now on."""
        self._registration = registration
        self._wake.set()

    def pulse(self, at: float, *, watched: bool) -> None:
        """The loop is alive at this moment. Watched closely while jobs run; otherwise looked at with each renewal."""
        self._pulse = at
        self._watched = watched
        self._blocked = False

    def silent_for(self) -> float:
        """Seconds since it last tried to renew: many when it hangs or its thread has died."""
        return elapsed() - self._tried_at

    def stop(self) -> None:
        """End the thread; waits a little, and then cuts its connection."""
        self._stop.set()
        self._wake.set()
        thread = self._thread
        if thread is None:
            return
        thread.join(timeout=1)
        if thread.is_alive():
            self.cut()
            thread.join(timeout=5)
        self._thread = None

    def cut(self) -> None:
        """A renewal hangs in a dead connection, or behind a lock: make it fail."""
        if self._connection is not None:
            give_up_aside(self._connection)

    def _run(self) -> None:
        due = elapsed() + self._renew_every
        self._reserve()
        try:
            while not self._stop.is_set():
                pause = min(due - elapsed(), LOOK_EVERY) if self._watched else due - elapsed()
                if self._wake.wait(max(pause, 0.001)):
                    self._wake.clear()
                if self._stop.is_set():
                    return
                self._look_at_the_loop()
                if elapsed() >= due:
                    due = elapsed() + (self._renew_every if self.renew_once() else RETRY_AFTER)
        finally:
            self._drop()

    def renew_once(self) -> bool:
        """One renewal. True when there is nothing to repeat: it worked, or there is nothing left to renew."""
        registration = self._registration
        self._tried_at = elapsed()
        if registration is None or registration.over:
            return True
        if faults.ARMED:
            faults.hit("before_renew")
        sent = registration.clock.elapsed()
        params = self._store.workers.renewal(registration.holder, self._lease_for, stopping=self.stopping)
        try:
            if self._connection is None:
                self._connection = self._store.connect_sync("renew")
            query = self._store.statements["workers/renew"]
            rows = fetch_limited_sync(self._connection, self._timeout, query, params)
        except (*RETRYABLE, DatabaseUnavailable, psycopg.Error) as error:
            self._drop()
            self.reached = False
            self._events.emit(
                RenewalFailed(
                    str(registration.holder),
                    describe(error),
                    round(registration.trust.left(registration.clock.elapsed()), 1),
                )
            )
            return False
        self.reached = True
        if rows:
            registration.trust.renewed(sent)
            return True
        registration.trust.end()
        self._on_lost(registration, "the database says it has passed")
        return True

    def _reserve(self) -> None:
        """The connection before it is needed: by then somebody else may have taken all that the server allows."""
        with suppress(*RETRYABLE, DatabaseUnavailable, psycopg.Error):  # the first renewal tries again, and says so
            self._connection = self._store.connect_sync("renew")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _look_at_the_loop(self) -> None:
        pulse = self._pulse
        if pulse is None or self._blocked:
            return
        silent = elapsed() - pulse
        if silent < self._blocked_after:
            return
        self._blocked = True  # said once per blockage
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return
        names, handler = self._handlers(), ""
        for walked, _ in traceback.walk_stack(frame):
            if walked.f_code in names:
                handler = names[walked.f_code]
        stack = "".join(traceback.format_stack(frame, limit=8))
        self._events.emit(LoopBlocked(handler or _application_code(frame), round(silent, 2), stack))


def _application_code(frame: FrameType) -> str:
    """The innermost function on the stack that is neither Python's nor a package's, "" if there is none."""
    for walked, _ in traceback.walk_stack(frame):
        file = walked.f_code.co_filename
        if not file.startswith(_NOT_APPLICATION) and "-packages" not in file:
            return walked.f_code.co_qualname
    return ""


_NOT_APPLICATION = (
    "<",
    str(Path(__file__).parent.parent),
    *(path for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))),
)
