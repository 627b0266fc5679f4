"""Writes the parts of `docs/reference/` that follow from the code, so that they cannot disagree with it.

Run `python -m tools.reference` after changing a setting, an event, an error, a statement or a command; a test fails until it
was done. A page is written by hand except for what stands between the two marks.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from tools.signatures import signatures
from trueup import errors
from trueup.cli.main import app as cli
from trueup.config import SETTINGS
from trueup.events import Event
from trueup.observe.logs import ENTRIES, LogLine
from trueup.store.db import load
from trueup.store.db.migrate import DIRECTORY

PAGES = Path(__file__).parents[1] / "docs/reference"
BEGIN = "<!-- made by: python -m tools.reference -->"
END = "<!-- end of what was made -->"
COMMON = ("--app", "--database-url", "--schema", "--json")  # explained once, not with every command


def configuration() -> str:
    rows = [
        (
            f"`{setting.name}`",
            f"`{setting.variable}`",
            f"`{setting.default}`" if setting.default else "",
            setting.meaning,
        )
        for setting in SETTINGS.values()
    ]
    return _table(("setting", "variable", "default", "meaning"), rows)


def event_list() -> str:
    return "\n\n".join(_event(cls, entry) for cls, entry in ENTRIES.items())


def _event(cls: type[Event], entry: LogLine) -> str:
    fields = [f"`{field.name}: {field.type}`" for field in dataclasses.fields(cls)]
    return "\n\n".join(
        (
            f"### `{cls.name}`",
            _meaning(cls) or f"{entry.message.capitalize()}.",
            f"Class `{cls.__name__}`. Logged at {logging.getLevelName(entry.level).lower()} as “{entry.message}”.",
            f"Fields: {', '.join(fields)}." if fields else "No fields.",
        )
    )


def _meaning(cls: type[Event]) -> str:
    """Its docstring, unless that is the one dataclasses make up."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return "" if text.startswith(f"{cls.__name__}(") else text


def error_tree() -> str:
    drawn = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    return f"```text\n{drawn}\n```"


def tables_and_statements() -> str:
    return "\n\n".join(("## Tables", *_tables(), "## Statements", *_statements()))


def _tables() -> Iterator[str]:
    remarks = _remarks()
    schema = (DIRECTORY / "schema.sql").read_text("utf-8")
    for part in schema.split("\n\n"):
        found = re.match(r"create table \{schema\}\.(\w+) \(", part)
        if found:
            name = found[1]
            text = part.strip().replace("{schema}", "trueup")
            yield "\n\n".join(filter(None, (f"### `{name}`", remarks.get(name, ""), f"```sql\n{text}\n```")))


def _remarks() -> dict[str, str]:
    """What the migrations say about each table they create."""
    found: dict[str, str] = {}
    for entry in sorted(DIRECTORY.iterdir(), key=lambda entry: entry.name):
        if entry.name[:4].isdigit():
            text = entry.read_text("utf-8")
            for remark, name in re.findall(r"((?:^-- .*\n)+)create table \{schema\}\.(\w+) \(", text, re.MULTILINE):
                found[name] = _uncommented(remark)
    return found


def _statements() -> Iterator[str]:
    noun = ""
    for name in load.names():
        if not name.startswith(f"{noun}/"):
            noun = name.partition("/")[0]
            yield f"### `{noun}/`"
        yield f"**`{name}.sql`** {_header(load.source(name))}".rstrip()


def _header(statement: str) -> str:
    lines = statement.splitlines()
    return _uncommented("\n".join(lines[: next(n for n, line in enumerate(lines) if not line.startswith("--"))]))


def _uncommented(text: str) -> str:
    return " ".join(line.removeprefix("--").strip() for line in text.splitlines())


def commands() -> str:
    return "\n\n".join(_commands(typer.main.get_command(cli), "trueup"))


def _commands(command: Any, path: str) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if not below:
        yield _command(command, path)
    elif path != "trueup":
        yield f"## `{path}`\n\n{command.help}"
    for name, each in below.items():
        yield from _commands(each, f"{path} {name}")


def _command(command: Any, path: str) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join((path, *(each.metavar if each.required else f"[{each.metavar}]" for each in arguments)))
    own = [each for each in options if each.opts[0] not in COMMON and not each.hidden]
    rows = [(f"`{each.metavar}`", "", each.help) for each in arguments if each.help]
    rows += [(_spelling(each), _default(each), each.help) for each in own]
    shared = [f"`{each.opts[0]}`" for each in options if each.opts[0] in COMMON]
    level = "##" if path.count(" ") == 1 else "###"
    return "\n\n".join(
        filter(
            None,
            (
                f"{level} `{usage}`",
                command.help,
                _table(("argument or option", "default", "meaning"), rows) if rows else "",
                f"Also {', '.join(shared)}." if shared else "",
            ),
        )
    )


def _spelling(option: Any) -> str:
    value = f" {option.metavar}" if option.metavar else ""
    return ", ".join(f"`{each}{value}`" for each in (*option.opts, *option.secondary_opts))


def _default(option: Any) -> str:
    return "" if option.default in (None, False) else f"`{option.default}`"


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


MADE: dict[str, Callable[[], str]] = {
    "cli.md": commands,
    "configuration.md": configuration,
    "errors.md": error_tree,
    "events.md": event_list,
    "signatures.md": signatures,
    "sql.md": tables_and_statements,
}


def rendered(name: str) -> str:
    """The page as it should be: its hand-written parts as they are, and the rest made anew."""
    before, mark, rest = (PAGES / name).read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{name} lacks one of the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{MADE[name]()}\n\n{END}{after}"


def main() -> None:
    for name in MADE:
        (PAGES / name).write_text(rendered(name), "utf-8")


if __name__ == "__main__":
    main()
