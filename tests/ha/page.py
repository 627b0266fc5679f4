"""The measured part of docs/explanation/failover.md, from the numbers of a run: `python -m tests.ha.page [FILE]`.

Without a file, from the numbers that are checked in.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/failover.md"
NUMBERS = Path(__file__).with_name("measured.json")
BEGIN, END = "<!-- made by: make chaos-ha -->\n", "<!-- end -->\n"
COUNTED = ("writes acknowledged", "writes acknowledged and lost", "runs done and lost", "ticks fired")


def rendered(measured: Mapping[str, Any]) -> str:
    return "\n".join(_lines(measured))


def _lines(measured: Mapping[str, Any]) -> Iterator[str]:
    machine, times = measured["machine"], measured["patroni"]
    facts = sum(sum(part["checked"].values()) for part in measured["parts"])
    violations = sum(len(part["violations"]) for part in measured["parts"])
    yield f"One run of `{measured['command']}`, {measured['seconds']} s on a {machine['system']} machine with {machine['cpus']} processors, Python {machine['python']}, with Patroni's `ttl` at {times['ttl']} s, `loop_wait` at {times['loop_wait']} s and `retry_timeout` at {times['retry_timeout']} s: {facts:,} facts checked, {violations} violations.\n"
    yield "| fault | writes pause, s | jobs pause, s | " + " | ".join(COUNTED) + " |"
    yield "| --- " * (3 + len(COUNTED)) + "|"
    for part in measured["parts"]:
        numbers = part["numbers"]
        pauses = (numbers["longest pause of writes, s"], numbers["longest pause of finished jobs, s"])
        yield f"| {part['title']} | " + " | ".join(str(cell) for cell in (*pauses, *map(numbers.get, COUNTED))) + " |"
    yield ""
    for part in measured["parts"]:
        yield f"### {part['title'][0].upper()}{part['title'][1:]}\n"
        yield "| seconds | what was seen |\n| --- | --- |"
        yield from (f"| {seconds:.1f} | {what} |" for seconds, what in part["timeline"])
        yield ""


def with_numbers(page: str, measured: Mapping[str, Any]) -> str:
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{rendered(measured)}\n{END}{after}"


def main() -> None:
    if sys.argv[1:]:
        shutil.copyfile(sys.argv[1], NUMBERS)
    PAGE.write_text(with_numbers(PAGE.read_text(), json.loads(NUMBERS.read_text())))


if __name__ == "__main__":
    main()
