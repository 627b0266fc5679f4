"""Finding the App that `--app module:attribute` names."""

from __future__ import annotations

import sys
from inspect import isroutine
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trueup.errors import ConfigError
from trueup.include import import_module

if TYPE_CHECKING:
    from trueup.app import App


def load_app(place: str) -> App:
    """The App at `module:attribute`, which the working directory may hold, with the modules that it includes.

    Raises ConfigError that says what is wrong.
    """
    from trueup.app import App
    from trueup.jobs.definition import Job

    module_name, _, attribute = place.partition(":")
    module = _import(module_name)
    found: object = module
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if isinstance(found, App):
        found.discover()
        return found
    kind = "Job" if isinstance(found, Job) else type(found).__name__
    what = f"is of type {kind}, not an App" if found is not None else "does not exist"
    advice = _apps_in(module, App)
    if isroutine(found) and advice is None:
        advice = f"write `app = {attribute}()` there, and --app {module_name}:app"
    raise ConfigError(f"{place} {what}; {advice or f'{module_name} has no App at its top level'}")


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return import_module(name, f"{here} was searched, too; check --app or TRUEUP_APP")


def _apps_in(module: ModuleType, app_class: type[App]) -> str | None:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, app_class))
    if not names:
        return None
    return "did you mean " + " or ".join(f"--app {module.__name__}:{name}" for name in names) + "?"
