"""Finding the modules that `App(include=[…])` names, and importing them.

A pattern is a dotted name in which `*` stands for one level of a package and `**` for all levels below: `shop.jobs`, `shop.*`,
`shop.*.jobs`. Packages above a `*` are imported, because a package decides itself where its modules are. A `__main__` is a program
and is never imported by a pattern.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from pkgutil import iter_modules
from types import FrameType, ModuleType
from typing import Literal

from trueup.errors import ConfigError
from trueup.events import ModuleDeclared

What = Literal["jobs", "schedules", "reconcilers", "scans"]
WHAT: tuple[What, ...] = ("jobs", "schedules", "reconcilers", "scans")
_OURS = Path(__file__).parent
_PROGRAMS = "trueup.demo"  # a program that uses the library


def import_included(patterns: Iterable[str]) -> list[str]:
    """Import what the patterns name, each module once and in their order. Raises ConfigError that names what is wrong."""
    names: dict[str, None] = {}
    for pattern in patterns:
        found = list(_expanded(pattern))
        if not found:
            raise ConfigError(
                f"include={pattern!r} matches no module; check the name, and whether its package is installed"
            )
        names.update(dict.fromkeys(found))
    for name in names:
        import_module(name, "include= names it")
    return list(names)


def import_module(name: str, why: str) -> ModuleType:
    """The module. Raises ConfigError when it does not exist (`why` says what names it), or with the error of its own code."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"there is no module {error.name!r} on the Python path; {why}") from None
        raise _failed(name, error) from error
    except (Exception, SystemExit) as error:  # the application's own code may raise anything
        raise _failed(name, error) from error


def _failed(name: str, error: Exception | SystemExit) -> ConfigError:
    if isinstance(error, SyntaxError) and error.filename is not None:
        place = f" at {error.filename}:{error.lineno}"
    else:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
        # A wrong declaration is refused in our code, but has to be corrected in the line that called it.
        theirs = list(takewhile(lambda frame: not Path(frame.filename).is_relative_to(_OURS), frames[1:])) or frames[1:]
        place = f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""
    said = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    if isinstance(error, SystemExit):
        said = f'it ended the program ({said}); put that below `if __name__ == "__main__":`'
    elif "circular import" in said:
        said += "; make the App in a module of its own, which imports no module that declares on it"
    return ConfigError(f"importing {name} failed{place}: {said}")


def _expanded(pattern: str) -> list[str]:
    parts = pattern.split(".")
    wild = next((place for place, part in enumerate(parts) if part in ("*", "**")), None)
    if wild is None:
        return [pattern]
    names = [".".join(parts[:wild])]
    for part in parts[wild:]:
        find = _descendants if part == "**" else _children
        names = [found for name in names for found in find(name) if part in ("*", "**", found.rpartition(".")[2])]
    return names


def _children(name: str) -> list[str]:
    """The modules and packages directly in a package; none in a plain module."""
    inside = getattr(import_module(name, "include= looks into it"), "__path__", ())
    return [found.name for found in iter_modules(inside, f"{name}.") if not found.name.endswith(".__main__")]


def _descendants(name: str) -> list[str]:
    return [found for child in _children(name) for found in (child, *_descendants(child))]


class DeclaredBy:
    """Which module declared what, for people who search for a job that does not run."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[What, dict[str, None]]] = {}

    def note(self, what: What, name: str) -> None:
        """Note a declaration by the module whose code called the declaring function."""
        self._modules.setdefault(_calling_module(), {}).setdefault(what, {})[name] = None

    def events(self, included: Iterable[str]) -> list[ModuleDeclared]:
        """An event for each module: the included ones, also those that declare nothing, and others that do."""
        return [self._event(module) for module in dict.fromkeys([*included, *self._modules])]

    def _event(self, module: str) -> ModuleDeclared:
        named = self._modules.get(module, {})
        return ModuleDeclared(module, *(tuple(named.get(what, ())) for what in WHAT))


def _calling_module() -> str:
    frame: FrameType | None = sys._getframe(2)
    name = ""
    while frame is not None:
        caller = str(frame.f_globals.get("__name__", ""))
        if caller.startswith("importlib.") and name:
            break  # one of our own modules declares something while it is imported
        name = caller
        if not name.startswith("trueup.") or name.startswith(_PROGRAMS):
            break
        frame = frame.f_back
    return name
