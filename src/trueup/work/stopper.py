"""Cancels the handlers of jobs whose cancellation was requested. Woken by a notification; looks by itself while anything runs."""

from __future__ import annotations

from trueup.events import Events
from trueup.jobs.decide import Drop
from trueup.store.jobs import Jobs
from trueup.work.jobs.finisher import Finisher
from trueup.work.jobs.hand import Hand
from trueup.work.registration import Registrations
from trueup.work.service import Service, jittered

EVERY = 10.0  # seconds; behind a pooler this is how long a running job may go on after it was asked to stop


class Stopper(Service):
    name = "stopper"

    def __init__(
        self, jobs: Jobs, hand: Hand, finisher: Finisher, events: Events, registrations: Registrations
    ) -> None:
        super().__init__(events)
        self._jobs = jobs
        self._hand = hand
        self._finisher = finisher
        self._registrations = registrations

    async def run_once(self) -> float:
        if self._hand.running or self._hand.waiting:
            for job_id, term in await self._jobs.stopping(self._registrations.current.holder):
                if run := self._hand.running.get((job_id, term)):
                    run.cancel("stop")
                elif job := self._hand.withdraw(job_id, term):
                    self._finisher.put_unstarted([job], Drop("stopped"))
        return jittered(EVERY)
