"""What is logged: one line for each cycle that found something, one for each request that moves."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from trueup import App
from trueup.events import RowChanged, SweepCompleted

from .judge import Status
from .requests import Request

log = logging.getLogger("payments")

TELL_AGAIN = 60  # seconds


class Watch:
    """Counts what this process does, cycle by cycle."""

    def __init__(self, app: App, reconciler: str, worker_id: str) -> None:
        self._reconciler = reconciler
        self._worker_id = worker_id
        self._scanned = 0
        self._errors = 0
        self._moved: Counter[str] = Counter()
        self._elapsed = app.clock.elapsed
        self._told: dict[tuple[str, str], float] = {}
        app.events.subscribe(self._if_ours(self._changed), RowChanged)
        app.events.subscribe(self._if_ours(self._completed), SweepCompleted)

    def _if_ours(self, count: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda event: count(event) if event.reconciler == self._reconciler else None

    def scanned(self) -> None:
        """A request was seen on its chain."""
        self._scanned += 1

    def failed(self, request: Request, error: Exception) -> None:
        """It could not be seen. When a node is away this comes for every request: each reason is told once a minute."""
        self._errors += 1
        now = self._elapsed()
        self._told = {reason: told for reason, told in self._told.items() if now - told < TELL_AGAIN}
        if (request.chain_id, str(error)) not in self._told:
            self._told[request.chain_id, str(error)] = now
            facts = {"request_id": str(request.id), "chain_id": request.chain_id, "error": str(error)}
            log.warning("Observation failed", extra={"worker_id": self._worker_id, **facts})

    def _changed(self, event: RowChanged) -> None:
        if event.state_to is None or event.state_from == event.state_to:
            return
        self._moved[event.state_to] += 1
        log.info(
            "Payment request moved",
            extra={
                "worker_id": self._worker_id,
                "request_id": event.key,
                "from": event.state_from,
                "to": event.state_to,
            },
        )

    def _completed(self, event: SweepCompleted) -> None:
        scanned, errors, moved = self._scanned, self._errors, self._moved
        self._scanned, self._errors, self._moved = 0, 0, Counter()
        log.info(
            "Reconciliation cycle",
            extra={
                "worker_id": self._worker_id,
                "claimed": event.claimed,
                "scanned": scanned,
                **{status.value: moved[status] for status in (Status.CONFIRMED, Status.DETECTED, Status.EXPIRED)},
                "skipped": event.conflict + event.lost,
                "errors": errors + event.retry + event.quarantined,
                "latency_ms": round(event.duration_ms),
            },
        )
