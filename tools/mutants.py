"""Makes small mistakes on purpose, one at a time, and sees whether the tests notice: `python -m tools.mutants [ID…]`.

The list is `tools/mutants.toml`. Each mutation is made in a copy of the tree, in a temporary directory, and only the tests named for it are
run. First all of those tests are run without any mutation: a test that fails by itself shows nothing. The result is the table in
`docs/explanation/mutants.md`. The exit status is 1 when one survives that was not argued to be equivalent.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tools/mutants.toml"
PAGE = ROOT / "docs/explanation/mutants.md"
BEGIN, END = "<!-- made by: make mutants -->", "<!-- end of what was made -->"
SURVIVED, EQUIVALENT = "survived", "equivalent"
TIMEOUT = 300  # seconds for the tests of one mutant
OF_ONE_TEST = 120  # seconds
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py)(?:::(\S+))?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mutant:
    id: str
    file: str  # below src/trueup, or from `apps/` on
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
    equivalent: str = ""

    def path(self, root: Path) -> Path:
        return root / self.file if self.file.startswith("apps/") else root / "src/trueup" / self.file

    def applied(self, root: Path) -> str:
        """The file with this mistake in it. Raises ValueError unless the text to replace stands there once."""
        text = self.path(root).read_text("utf-8")
        if (found := text.count(self.old)) != 1:
            raise ValueError(
                f"mutant {self.id!r}: {self.file} has its text {found} times; mend it in tools/mutants.toml"
            )
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    given = tomllib.loads(LIST.read_text("utf-8"))["mutant"]
    return [Mutant(**{**each, "tests": tuple(each["tests"])}) for each in given]


@contextmanager
def copied() -> Iterator[Path]:
    """The files that git knows, elsewhere."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory(prefix="trueup-mutants-") as directory:
        for name in listed.stdout.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (Path(directory) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, Path(directory) / name)
        if (ROOT / ".cache").is_dir():  # programs that tests would fetch anew
            (Path(directory) / ".cache").symlink_to(ROOT / ".cache")
        yield Path(directory)


class Bench:
    """Runs tests in forks of a process that has a PostgreSQL server and the packages of others ready; ours are imported anew in each."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self._runs = 0

    @contextmanager
    def ready(self) -> Iterator[None]:
        sys.path[:] = [str(self.tree), str(self.tree / "src"), *(path for path in sys.path if Path(path) != ROOT)]
        os.environ |= {"PYTHONPATH": str(self.tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        os.chdir(self.tree)
        from tests.support.database import TestServer
        from tests.support.memory import in_memory

        with tempfile.TemporaryDirectory(dir=in_memory()) as directory, TestServer(Path(directory)) as server:
            self._url = server.cluster.url("DATABASE")
            yield

    def failing(self, tests: Sequence[str], within: float = TIMEOUT) -> str:
        """The first of these tests that fails, "" when none does. They have that many seconds."""
        self._runs += 1
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if not child:
                os.setsid()
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                os._exit(self._run(tests))
            status = _ended(child, within)
            output.seek(0)
            said = output.read().decode("utf-8", "replace")
        if status == 0:
            return ""
        if status is None:
            return "(the tests did not end)"
        found = FAILED.search(said)
        if status != 1 or found is None:
            raise RuntimeError(f"pytest ended with {status}:\n{said[-4000:]}")
        name = (found[2] or "").partition("[")[0].rpartition("::")[2]
        return f"`{found[1]}::{name}`" if name else f"`{found[1]}`"

    def _run(self, tests: Sequence[str]) -> int:
        for module in [name for name in sys.modules if name.partition(".")[0] in ("trueup", "tests", "apps")]:
            del sys.modules[module]
        from tests.support import database

        url, numbers = self._url, itertools.count(1_000 * self._runs)

        class Shared(database.TestServer):
            """The server that runs already, unless one with settings of its own is wanted."""

            def __init__(self, directory: Path, **settings: str) -> None:
                super().__init__(directory, **settings)
                self._shared = not settings
                if self._shared:
                    self._numbers = numbers
                    self.cluster.url = lambda name="postgres": url.replace("DATABASE", name)  # type: ignore[method-assign]

            def __enter__(self) -> Self:
                return self if self._shared else super().__enter__()

            def __exit__(self, *given: Any) -> None:
                if not self._shared:
                    super().__exit__(*given)

        database.TestServer = Shared  # type: ignore[misc]
        import pytest

        options = f"-n 0 --proof -x -q -p no:cacheprovider --no-header --tb=line --timeout {OF_ONE_TEST} --rootdir {self.tree}"
        return int(pytest.main([*options.split(), *tests]))


def _ended(child: int, within: float) -> int | None:
    """Its exit status; None when it took too long and was killed, with all that it had started."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def killed(bench: Bench, mutant: Mutant) -> str:
    path = mutant.path(bench.tree)
    before = path.read_text("utf-8")
    path.write_text(mutant.applied(bench.tree), "utf-8")
    try:
        return bench.failing(mutant.tests)
    finally:
        path.write_text(before, "utf-8")


def verdicts() -> dict[str, str]:
    """By mutant, what the page says became of it."""
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| (.+?) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return dict(rows)


def row(mutant: Mutant, verdict: str) -> str:
    return f"| `{mutant.id}` | `{mutant.file}` | {mutant.breaks} | {verdict} |"


def write(found: dict[str, str]) -> None:
    known = mutants()
    rows = [row(mutant, found[mutant.id]) for mutant in known if mutant.id in found]
    count = sum(verdict.startswith("`tests/") for verdict in found.values())
    said = (
        f"{len(rows)} mutants: {count} killed, {sum(bool(each.equivalent) for each in known)} argued to be equivalent."
    )
    table = "\n".join(("| mutant | file | what it breaks | killed by |", "| --- | --- | --- | --- |", *rows))
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{said}\n\n{table}\n\n{END}{rest.partition(END)[2]}", "utf-8")


def main(ids: Sequence[str]) -> int:
    known = mutants()
    if unknown := set(ids) - {mutant.id for mutant in known}:
        print(f"usage: python -m tools.mutants [ID…]; {LIST.name} has no {', '.join(sorted(unknown))}")
        return 2
    chosen = [mutant for mutant in known if not ids or mutant.id in ids]
    found = {name: verdict for name, verdict in verdicts().items() if name in {mutant.id for mutant in known}}
    survivors = []
    with copied() as tree, (bench := Bench(tree)).ready():
        tests = sorted({test for mutant in chosen for test in mutant.tests})
        if broken := bench.failing(tests, TIMEOUT + 60 * len(tests)):
            print(f"without any mutation {broken} fails")
            return 1
        for mutant in chosen:
            began = time.monotonic()
            by = killed(bench, mutant)
            if mutant.equivalent and not by:
                by = f"{EQUIVALENT}: {mutant.equivalent}"
            elif not by:
                survivors.append(mutant.id)
            found[mutant.id] = by or SURVIVED
            print(f"{mutant.id:<22} {time.monotonic() - began:5.1f} s  {by or SURVIVED}", flush=True)
            write(found)
    print(f"{len(survivors)} of {len(chosen)} survived{': ' if survivors else ''}{', '.join(survivors)}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
