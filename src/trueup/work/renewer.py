"""Keeps the worker's lease; `work/renewing.py` is the shape.

States: *trusted* (renewed recently), *doubtful* (renewals fail, time is left), *lost* (refused by the database, or the local
deadline has passed). While the event loop is blocked, the thread names the handler on its stack. The loop watches the deadline.
Should everything fail, the lease simply expires and another worker rescues the jobs; the fence refuses our late finishes.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from trueup import faults
from trueup.clock import elapsed
from trueup.config import Settings
from trueup.events import Events, LoopBlocked, RenewalFailed
from trueup.jobs.registry import Registry
from trueup.store.db.thread_connection import ThreadConnection
from trueup.store.store import Store
from trueup.texts import describe
from trueup.work.registration import Registration
from trueup.work.renewing import NOT_RENEWED, RETRY_AFTER, Renewing

LOOK_EVERY = 0.25  # seconds between looks at the loop's pulse while jobs run
MAX_STACK = 8  # calls that are shown of a blocked loop


class Renewer(Renewing):
    connection: ThreadConnection

    def __init__(
        self,
        store: Store,
        events: Events,
        settings: Settings,
        registry: Registry,
        *,
        on_lost: Callable[[Registration, str], None],
    ) -> None:
        timeout = min(store.statement_timeout, settings.lease_for / 3)  # short, so that there is time to try again
        super().__init__("renewer", events, store.thread_connection("renew", timeout))
        self._store = store
        self._lease_for = settings.lease_for
        self._renew_every = settings.renew_every.total_seconds()
        self._blocked_after = settings.blocked_after.total_seconds()
        self._registry = registry
        self._on_lost = on_lost
        self._registration: Registration | None = None
        self._due = elapsed() + self._renew_every
        self._loop_thread = 0
        self._pulse: float | None = None
        self._watched = False
        self._blocked = False
        self._blockages = 0
        self._blockage: dict[str, object] | None = None  # the last blockage, until a renewal has stored it
        self._tried_at = elapsed()
        self.reached = True  # whether the last renewal got an answer
        self.stopping = False

    def start(self, first_in: float = 0.0) -> None:
        """Called on the event loop's thread, which is then the one watched."""
        self._loop_thread = threading.get_ident()
        self._due = elapsed() + self._renew_every
        super().start(first_in)

    def keep(self, registration: Registration) -> None:
        """Renew this registration from now on."""
        self._registration = registration

    def pulse(self, at: float, *, watched: bool) -> None:
        """The event loop runs at this moment. The thread checks this closely while jobs run, and otherwise each `blocked_after`."""
        self._pulse = at
        self._watched = watched
        self._blocked = False

    @property
    def trusted(self) -> bool:
        """Whether the worker has a lease that it may still act under."""
        return self._registration is not None and self._registration.trusted

    def silent_for(self) -> float:
        """Seconds since it last tried to renew: many when it hangs or its thread has died."""
        return elapsed() - self._tried_at

    def run_once(self) -> float:
        self._look_at_the_loop()
        if elapsed() >= self._due:
            self._due = elapsed() + (self._renew_every if self.renew_once() else RETRY_AFTER)
        left = max(self._due - elapsed(), 0.0)
        # An idle worker's first job may block before the loop has told that it is watched; so may the handler of a row.
        return min(left, LOOK_EVERY if self._watched else max(LOOK_EVERY, self._blocked_after))

    def _run(self, pause: float | None) -> None:
        # Connect before it is needed: later, other clients may have taken every connection that the server allows.
        with suppress(*NOT_RENEWED), self.connection.use():  # the first renewal tries again, and says so
            pass
        super()._run(pause)

    def renew_once(self) -> bool:
        """Renew once. True if it need not be repeated: it worked, or there is nothing left to renew."""
        registration = self._registration
        self._tried_at = elapsed()
        if registration is None or registration.over:
            return True
        faults.hit("before_renew")
        sent = registration.clock.elapsed()
        blocked = self._blockage
        params = self._store.workers.renewal(
            registration.holder, self._lease_for, stopping=self.stopping, blocked=blocked
        )
        try:
            rows = self.connection.fetch(self._store.statements["workers/renew"], params)
        except NOT_RENEWED as error:
            self.reached = False
            left = registration.trust.left(registration.clock.elapsed())
            self._events.emit(RenewalFailed(str(registration.holder), describe(error), round(left, 1)))
            return False
        self.reached = True
        if rows:
            if self._blockage is blocked:
                self._blockage = None
            registration.trust.renewed(sent)
            return True
        registration.trust.end()
        self._on_lost(registration, "the database says that it has expired")
        return True

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
        names, handler = {getattr(job.function, "__code__", None): job.kind for job in self._registry}, ""
        for walked, _ in traceback.walk_stack(frame):
            if walked.f_code in names:
                handler = names[walked.f_code]
        name, application = _application_code(frame)
        self._blockages += 1
        culprit, seconds, stack = handler or name, round(silent, 2), _stack(frame, application)
        self._blockage = {"times": self._blockages, "handler": culprit, "seconds": seconds}
        self._events.emit(LoopBlocked(culprit, seconds, stack))


def _application_code(frame: FrameType) -> tuple[str, FrameType | None]:
    """The innermost function on the stack that is neither Python's nor a package's, or the module that is imported; "" if there is none.

    The program's own first lines are always on the stack, and never what blocks.
    """
    for walked, _ in traceback.walk_stack(frame):
        file, name = walked.f_code.co_filename, walked.f_code.co_qualname
        if file.startswith(_NOT_APPLICATION) or "-packages" in file:
            continue
        if name != "<module>":
            return name, walked
        module = walked.f_globals.get("__name__")
        return ("", None) if module == "__main__" else (str(module), walked)
    return "", None


def _stack(frame: FrameType, application: FrameType | None) -> str:
    """The innermost calls; where these are all a library's, the line of the application that led to them comes first."""
    walked = [each for each, _ in traceback.walk_stack(frame)][:MAX_STACK]
    before = [] if application is None or application in walked else traceback.format_stack(application, limit=1)
    return "".join([*before, *traceback.format_stack(frame, limit=MAX_STACK)])


_NOT_APPLICATION = (
    "<",
    str(Path(__file__).parent.parent),
    *(path for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))),
)
