"""Every `trueup …` that a page, an example, a deployment file or a message of the code runs or names is one that the parser accepts."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.docs.pages import PAGES, ROOT, blocks, prose, title
from trueup.cli.errors import ParserError
from trueup.cli.main import command
from trueup.config import NOT_SETTINGS
from trueup.config.settings import PREFIX, SETTINGS

READMES = sorted([*ROOT.glob("examples/*/README.md"), *ROOT.glob("apps/*/README.md"), *ROOT.glob("deploy/**/*.md")])
WRITTEN = [page for page in [*PAGES, *READMES] if title(page) != "docs/reference/cli.md"]  # that one is generated
SOURCE = ROOT / "src/trueup"

INLINE = re.compile(r"`+((?:python )?(?:manage\.py )?trueup [a-z-][^`]*)`+")
LINE = re.compile(r"^\s*(?:[A-Z_]+=\S+ )*(?:\$ )?(?:(?:\S*/)?python )?(?:manage\.py )?trueup (.*)$")
# In a message: after a colon, in backquotes, or at its end. "trueup worker" as a plain noun is no command.
SAID = re.compile(r"(?:run:?|one:|with:?|try:?) trueup ((?:[a-z-]+)(?: [a-z-]+| [A-Z:.]+| \S*…\S*| [a-z]+:[a-z]+)*)")
END = {"|", "&&", "||", ";", ">", ">>", "<", "&", "2>&1", ")"}
SESSIONS = {"claim", "finish"}  # names in pg_stat_activity
PLACEHOLDERS = {"ID": "1", "ID…": "1", "PID": "1", "N": "1"}


def in_shell(page: Path) -> list[tuple[int, str]]:
    found = []
    for block in blocks(page):
        if block.language in ("sh", "bash", "shell", "console"):
            joined = block.code.replace("\\\n", " ")
            found += [
                (block.line, match[1])
                for line in re.split(r"\n|&& |; ", joined)
                if (match := LINE.match(line)) is not None
            ]
    return found


def in_text(page: Path) -> list[tuple[int, str]]:
    found = [match[1].partition("trueup ")[2] for match in INLINE.finditer(prose(page))]
    return [(0, text) for text in found if text not in SESSIONS]


@cache
def in_messages(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "1…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        found += [(node.lineno, match[1]) for match in SAID.finditer(text)]
        found += [(node.lineno, match[1].partition("trueup ")[2]) for match in INLINE.finditer(text)]
    return found


def words(line: str) -> list[str]:
    given: list[str] = []
    for word in shlex.split(line, comments=True):
        if word in END:
            break
        given += [PLACEHOLDERS.get(word, word)] if word not in ("…", "...") else []
    return given


def refused(line: str) -> str | None:
    """Why the parser refuses the line; None if it accepts it. A command named without its arguments is a reference to it."""
    given = words(line)
    at: Any = command()
    path = []
    while given and getattr(at, "commands", None):
        if given[0].startswith("-"):
            break
        if "|" in given[0]:  # pause|resume: each of them
            return next((why for one in given[0].split("|") if (why := refused(shlex.join([*path, one])))), None)
        if given[0] not in at.commands:
            return f"no command {given[0]!r}"
        at = at.commands[given[0]]
        path.append(given.pop(0))
    if not given:
        return None
    try:
        at.make_context("trueup", list(given))
    except typer.Exit:  # --help, --version
        return None
    except ParserError as error:
        # In running text an option may be named without its value: "`trueup worker --processes` starts …"
        named = type(error).__name__ in ("MissingParameter", "BadOptionUsage") and given[-1].startswith("-")
        return None if named else str(error.format_message())
    return None


@pytest.mark.parametrize("page", WRITTEN, ids=title)
def test_every_command_on_a_page_is_one_the_parser_accepts(page: Path) -> None:
    wrong = [(line, text, why) for line, text in in_shell(page) + in_text(page) if (why := refused(text))]
    assert wrong == []


@pytest.mark.slow
def test_every_command_in_a_message_is_one_the_parser_accepts() -> None:
    wrong = [
        (title(path), line, text, why)
        for path in sorted(SOURCE.rglob("*.py"))
        for line, text in in_messages(path)
        if (why := refused(text))
    ]
    assert wrong == []


def test_commands_are_found_and_wrong_ones_refused() -> None:
    assert sum(len(in_shell(page)) for page in WRITTEN) > 100
    assert sum(len(in_messages(path)) for path in SOURCE.rglob("*.py")) > 15
    for wrong in ("jobs enqeue x", "status --jsno", "worker --concurrency many", "jobs list --state lost"):
        assert refused(wrong)


# What runs commands without a shell around them: `command: [trueup, worker]`, `CMD [...]` is checked with deploy/.
LISTED = re.compile(r"\[\s*\"?trueup\"?\s*,([^\]]*)\]")
RUN = re.compile(r"(?:run: |COMMAND: |^\t@|python -m )(?:\S*/|\$\(BIN\)/)?trueup(?:\.cli)? ([^#\n]*)", re.MULTILINE)
RUNNERS = [
    *sorted(path for path in (ROOT / "deploy").rglob("*") if path.is_file()),
    *sorted((ROOT / ".github").rglob("*.yml")),
    *sorted(ROOT.glob("apps/*/compose.yaml")),
    ROOT / "Makefile",
    *WRITTEN,
]


def in_lists(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    lists = [" ".join(re.findall(r"[^\s,\"']+", match[1])) for match in LISTED.finditer(text)]
    return lists + [re.sub(r"\$\(.*", "", match[1]).strip() for match in RUN.finditer(text)]


def test_every_command_that_a_file_runs_is_one_the_parser_accepts() -> None:
    found = {(title(path), command) for path in RUNNERS for command in in_lists(path)}
    assert {(path, command, why) for path, command in found if (why := refused(command))} == set()
    assert {"deploy/kubernetes/worker.yaml", "docs/howto/deploying.md", "Makefile", ".github/workflows/test.yml"} <= {
        path for path, _ in found
    }
    assert len({path for path, _ in found if path.startswith("apps/")}) == 5


VARIABLE = re.compile(r"\bTRUEUP_[A-Z][A-Z_]*[A-Z]\b")
FILES = [
    path
    for place in ("src", "docs", "deploy", "examples", "apps", ".github", "Makefile", "README.md")
    for path in sorted([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))
    if path.suffix in (".py", ".md", ".toml", ".yaml", ".yml", ".service", ".ini", ".example", "") and path.is_file()
]


def test_every_variable_that_people_are_told_to_set_is_one_that_commands_accept() -> None:
    accepted = {f"{PREFIX}{name.upper()}" for name in SETTINGS} | NOT_SETTINGS
    named = {found: path for path in FILES for found in VARIABLE.findall(path.read_text("utf-8", "ignore"))}
    assert {name: title(path) for name, path in named.items() if name not in accepted} == {}
    assert len(named) > 40
