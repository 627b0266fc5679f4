"""The path of a new user, in a fresh directory and environment, timed: `python -m tools.stranger [WHEEL]`.

It installs the wheel with extras, runs the README's examples, follows each tutorial, and writes a reconciler of its own. Blocks are
taken from the pages and run as they are; a reader replaces two things in them, the path of the checkout and a process id. It needs a
package index, and no database: the embedded one is part of the path.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.pages import DOCS, ROOT, blocks
from tests.support.waiting import wait_until
from tools import release

WITHIN = 120.0  # seconds, for any one step
OWN = """\
from trueup import App, Row, To

app = App()
invoices = app.table("invoices", key="number", state="state", changed_at="changed_at")


@invoices.reconcile("sent", stale_for="30d", every="1s")
async def remind(invoice: Row) -> To:
    return To("reminded")
"""
TABLE = """\
create table invoices (number text primary key, state text not null, changed_at timestamptz not null);
insert into invoices values ('A-1', 'sent', now() - interval '40 days'), ('A-2', 'sent', now());
"""


class Shell:
    """A terminal: directory, environment and activation carry over from one line to the next."""

    def __init__(self, directory: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRUEUP_", "DATABASE_URL"))}
        kept["PATH"] = kept["PATH"].replace(str(Path(sys.executable).parent), "")  # the reader does not have this one
        self._environment = {name: value for name, value in kept.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
        self.directory, self.background, self.logs = directory, [], list[Path]()
        self._before = ""

    def run(self, line: str, *, status: int = 0, told: str = "") -> str:
        """What the line wrote, when it has ended with this status."""
        script = f"{self._before}cd {shlex.quote(str(self.directory))}\n{line}\nended=$?; pwd >&9; exit $ended"
        with tempfile.NamedTemporaryFile("r") as place:
            done = subprocess.run(
                ["bash", "-c", f"exec 9>{place.name}\n{script}"],
                env=self._environment,
                input=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=WITHIN,
            )
            self.directory = Path(place.read().strip() or self.directory)
        if done.returncode != status:
            sys.exit(f"{line}\nended with {done.returncode} and not {status}:\n{done.stdout}")
        if "bin/activate" in line:
            self._before = f". {shlex.quote(str(self.directory / '.venv/bin/activate'))}\n"
        return done.stdout

    def leave_running(self, line: str) -> Path:
        """Start it in a terminal of its own. Returns the file that it writes to."""
        log = self.directory / f"terminal-{len(self.logs)}.log"
        command = f"{self._before}cd {shlex.quote(str(self.directory))}\nexec {line}"
        with log.open("wb") as output:
            started = subprocess.Popen(
                ["bash", "-c", command], env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.background.append(started)
        self.logs.append(log)
        return log

    def said(self, text: str) -> None:
        """Wait until a terminal shows this."""
        wait_until(
            lambda: any(text in log.read_text(errors="replace") for log in self.logs), text, timeout=WITHIN, pause=0.1
        )

    def interrupt(self) -> None:
        """Ctrl-C in every terminal."""
        for process in self.background:
            if process.poll() is None:
                process.terminate()
            process.wait(WITHIN)
        self.background.clear()


def follow(
    shell: Shell, page: Path, answers: dict[str, Callable[[str], None]], replaced: dict[str, Callable[[], str]]
) -> None:
    """Every block of a page, from top to bottom. `answers` looks at what a line wrote, or waits before the next."""
    for block in blocks(page):
        if block.file is not None:
            (shell.directory / block.file).write_text(block.code)
        elif block.language == "sql":  # the page has opened a prompt for it
            shell.run("trueup postgres psql", told=block.code)
        elif block.language == "sh":
            for line in filter(None, block.code.splitlines()):
                given = line
                for word, value in replaced.items():
                    if word in given:
                        given = given.replace(word, value())
                if line == "trueup postgres psql":
                    continue  # opened when there is something to type
                if line == "trueup worker":
                    shell.leave_running(line)
                    shell.said("worker started")
                    written = ""
                else:
                    written = shell.run(given, status=2 if line.endswith("=many") else 0)
                if line in answers:
                    answers[line](written)


def readme(shell: Shell, wheel: Path) -> None:
    shell.run(f"python3 -m venv .venv && . .venv/bin/activate && pip install --quiet '{wheel}[embedded,testing]'")
    (shell.directory / "readme.py").write_text(
        "\n".join(block.code for block in blocks(ROOT / "README.md") if block.language == "python")
    )
    assert "Hello, Ada\n" in shell.run("python readme.py")


def first_job(shell: Shell, wheel: Path) -> None:
    def pid() -> str:
        (worker,) = json.loads(shell.run("trueup status --json"))["workers"]
        return str(worker["pid"])

    def shown(written: str) -> None:
        assert "count" in written
        if shell.logs[1:]:
            assert "counted to 30" in written, written
            assert "WorkerLost" in written, written

    def started(_: str) -> None:
        if shell.logs[1:]:
            shell.said("job rescued")
            shell.said("attempt 2: 30 of 30")
            wait_until(lambda: '"done"' in shell.run("trueup jobs show 1 --json"), "it is done", timeout=WITHIN)

    follow(
        shell,
        DOCS / "tutorial/first-job.md",
        {
            "trueup jobs enqueue count --arg upto=30": lambda _: shell.said("attempt 1: 1 of 30"),
            "trueup worker": started,
            "trueup jobs show 1": shown,
        },
        {"/path/to/trueup": lambda: str(wheel), "PID": pid},
    )
    shell.interrupt()


def first_reconciler(shell: Shell, wheel: Path) -> None:
    def quarantined(written: str) -> None:
        assert "the order has no address" in written, written

    def settled(_: str) -> None:
        rows = "select count(*) from trueup.rows where state = 'quarantined'"
        wait_until(
            lambda: shell.run(f'trueup postgres psql -Atc "{rows}"').strip() == "1", "one is set aside", timeout=WITHIN
        )

    def all_shipped(_: str) -> None:
        left = "select count(*) from orders where status <> 'shipped'"
        wait_until(
            lambda: shell.run(f'trueup postgres psql -Atc "{left}"').strip() == "0", "all are shipped", timeout=WITHIN
        )

    shell.run("mkdir ../second && cd ../second")
    follow(
        shell,
        DOCS / "tutorial/first-reconciler.md",
        {
            "trueup worker": settled,
            "trueup reconcilers quarantine list": quarantined,
            "trueup reconcilers quarantine release ship_stuck_orders 13": all_shipped,
        },
        {},
    )
    shell.interrupt()
    shell.run("trueup postgres stop")


def first_schedule(shell: Shell, wheel: Path) -> None:
    page = DOCS / "tutorial/first-schedule.md"
    first, *others = [block for block in blocks(page) if block.language == "sh"]
    opened = first.code.splitlines()
    assert opened[-1] == "python -m asyncio"
    shell.run(" && ".join(opened[:-1]))
    # A prompt takes an empty line as the end of a definition, so this is what pasting a block does.
    typed = "\n".join(re.sub(r"\n\n+(?=    )", "\n", block.code) for block in blocks(page) if block.runs)
    written = shell.run("python -m asyncio", told=f"{typed}\nprint('to the', 'end')\n")
    assert "to the end" in written, written
    assert "Traceback" not in written, written
    for block in others:
        assert "2027-03-28" in shell.run(block.code.strip())
    shell.run("trueup postgres stop")


def own_reconciler(shell: Shell, wheel: Path) -> None:
    shell.run("mkdir ../own && cd ../own")
    (shell.directory / "billing.py").write_text(OWN)
    shell.run("trueup postgres start && trueup migrate && trueup postgres psql", told=TABLE)
    assert "A-1" in shell.run("trueup --app billing:app reconcilers run remind --dry-run")
    shell.leave_running("trueup worker --app billing:app")
    states = "select string_agg(state, ' ' order by number) from invoices"
    wait_until(
        lambda: shell.run(f'trueup postgres psql -Atc "{states}"').strip() == "reminded sent", "A-1", timeout=WITHIN
    )
    shell.interrupt()
    shell.run("trueup postgres stop")


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)


def main(wheel: Path) -> None:
    with tempfile.TemporaryDirectory(
        prefix="stranger-", ignore_cleanup_errors=True
    ) as home:  # a step that hangs still writes
        shell = Shell(Path(home))
        try:
            for step in (readme, first_job, first_reconciler, first_schedule, own_reconciler):
                with timed(step.__name__.replace("_", " ")):
                    step(shell, wheel)
        finally:
            shell.interrupt()
            for data in Path(home).rglob(".trueup"):  # of a step that failed
                shell.run(f"cd {shlex.quote(str(data.parent))}; trueup postgres stop || true")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as built:
            main(release.build(ROOT, Path(built))[1])
