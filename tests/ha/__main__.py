"""Failover on a real cluster: `python -m tests.ha [--parts kill,lagging] [--json FILE]`.

Three PostgreSQL servers under Patroni, with etcd, on loopback. Worker processes and clients reach them by libpq's multi-host URL.
Each part brings one fault under load, and then everything that must hold is checked. A table is kept up to date while it runs.
The exit status is 0 when everything holds, 1 on a violation, 2 when a fault did not land and so proved nothing.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ha.scenarios import SCENARIOS, Scenario
from tests.support import report
from tests.support.patroni import TIMES, HighAvailability
from tests.support.report import DidNotLand, Live, Part
from trueup.clock import elapsed

COMMAND = "make chaos-ha"
TITLE = "Failover on a cluster of three"


def play(ha: HighAvailability, scenario: Scenario, part: Part, directory: Path) -> None:
    """One part. Whatever keeps it from its end is a violation, unless the fault itself did not land."""
    part.state = report.RUNNING
    try:
        scenario.run(ha, part, directory / part.name)
    except DidNotLand as error:
        part.void = str(error)
    except Exception as error:
        places = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        part.violations.append(f"ended early: {error!r} in {' > '.join(places[-5:])}")
    part.judge()


@contextmanager
def drawn(parts: Sequence[Part]) -> Iterator[None]:
    """The table of the parts, kept up to date."""
    live = Live(lambda: report.parts_table(parts), lambda: [(part.state, part.doing) for part in parts])
    ended = threading.Event()

    def draw() -> None:
        while not ended.wait(1):
            live.draw()

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        live.draw()


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [each.name for each in SCENARIOS]
    parser.add_argument("--parts", default=",".join(names), help=f"which, of {', '.join(names)}")
    parser.add_argument("--json", type=Path, help="where to write the report for programs")
    given = parser.parse_args()
    wanted = [each for each in SCENARIOS if each.name in given.parts.split(",")]
    parts = [Part(each.name, each.title) for each in wanted]
    signal.signal(signal.SIGTERM, interrupted)
    logging.getLogger("psycopg.pool").setLevel(
        logging.CRITICAL
    )  # each try to connect during a failover would be in the table
    began = elapsed()
    with (
        tempfile.TemporaryDirectory(prefix="trueup-ha-", ignore_cleanup_errors=True) as directory,
        drawn(parts),
        HighAvailability(Path(directory) / "cluster") as ha,
    ):
        for scenario, part in zip(wanted, parts, strict=True):
            play(ha, scenario, part, Path(directory))
    print("\n" + report.readable(TITLE, COMMAND, parts))
    seconds = round(elapsed() - began)
    print(f"{seconds} s")
    if given.json:
        report.write(given.json, report.document(COMMAND, parts, seconds=seconds, patroni=TIMES))
    return report.EXIT[report.verdict(parts)]


if __name__ == "__main__":
    sys.exit(main())
