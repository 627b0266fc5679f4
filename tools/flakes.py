"""Which tests fail when the machine is busy: `python -m tools.flakes [--runs 5] [--select EXPRESSION] [TESTS …]`.

Runs the slow tests (or those that `--select` names, as pytest's `-m`) several times, beside processes that compute and
processes that write and wait for the disk, one of each per processor. Says how often each test failed, with the last line of
what it said, and exits with 1 if any did. A test that fails here may be right about a bug: read it before its bounds are moved.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
COMPUTE = "while True: sum(range(100_000))"
WRITE = """
import os, sys
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
"""


@contextmanager
def pressure(per_processor: int, directory: Path) -> Iterator[None]:
    """The processors and the disk are busy inside the block."""
    count = per_processor * (os.cpu_count() or 1)
    with ExitStack() as stack:
        for number in range(count):
            for command in (["-c", COMPUTE], ["-c", WRITE, str(directory / f"written-{number}")]):
                process = stack.enter_context(subprocess.Popen([sys.executable, *command]))
                stack.callback(process.kill)
        yield


def failures(report: Path) -> Iterator[tuple[str, str]]:
    """The tests that failed, and the first line of why."""
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        for kind in ("failure", "error"):
            if (found := case.find(kind)) is not None:
                reason = (found.get("message") or "").strip().splitlines() or [kind]
                yield f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}", reason[0][:160]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.flakes", description="Which tests fail on a busy machine.")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files or directories")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--select", default="slow", help="pytest's -m")
    parser.add_argument("--pressure", type=int, default=1, help="processes of each kind per processor")
    options = parser.parse_args()
    failed: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="trueup-flakes-") as place:
        directory = Path(place)
        with pressure(options.pressure, directory):
            for run in range(1, options.runs + 1):
                report = directory / f"report-{run}.xml"
                command = [
                    "-m",
                    "pytest",
                    "--proof",
                    "-m",
                    options.select,
                    "--no-header",
                    "--tb=short",
                    f"--junitxml={report}",
                ]
                ended = subprocess.run([sys.executable, *command, *options.tests], cwd=ROOT, check=False)
                if ended.returncode not in (0, 1):
                    print(f"run {run}: pytest itself ended with {ended.returncode}")
                    return ended.returncode
                for name, reason in failures(report):
                    failed[name] += 1
                    reasons[name] = reason
                print(f"run {run} of {options.runs}: {len(failed)} tests have failed so far", flush=True)
    for name, times in failed.most_common():
        print(f"{times} of {options.runs}  {name}\n    {reasons[name]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
