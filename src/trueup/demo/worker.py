"""One worker process of the demo: `python -m trueup.demo.worker`, with its settings in the environment.

Writes what happens to it as JSON lines. Stops in order on SIGTERM, and at once when its input ends, so that none is left
behind by a demo that was itself killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import asdict
from datetime import UTC, datetime

import orjson

from trueup import events
from trueup.demo import outside
from trueup.demo.jobs import app

# Left out: what comes with every single job.
WRITTEN = (
    events.WorkerStarted,
    events.WorkerStopping,
    events.WorkerStopped,
    events.WorkerLeaseLost,
    events.WorkerExpired,
    events.RenewalFailed,
    events.LoopBlocked,
    events.JobRescued,
    events.JobClaimLost,
    events.JobRetried,
    events.JobBuried,
    events.DatabaseLost,
    events.DatabaseRestored,
    events.ServiceFailed,
)


def write(event: events.Event) -> None:
    line = {"at": datetime.now(UTC), "event": event.name, **asdict(event)}
    os.write(sys.stdout.fileno(), orjson.dumps(line) + b"\n")  # at once: events come from the renewer's thread, too


async def main() -> None:
    app.events.subscribe(write, *WRITTEN)
    worker = app.worker()
    loop = asyncio.get_running_loop()

    def parent_has_gone() -> None:
        loop.remove_reader(sys.stdin)
        worker.request_stop()
        worker.request_stop()

    loop.add_signal_handler(signal.SIGTERM, worker.request_stop)
    loop.add_reader(sys.stdin, parent_has_gone)
    await worker.run()
    await app.close()
    await asyncio.to_thread(outside.close)


if __name__ == "__main__":
    asyncio.run(main())
