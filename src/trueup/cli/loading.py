"""Finding the App that `--app module:attribute` means."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trueup.errors import ConfigError

if TYPE_CHECKING:
    from trueup.app import App


def load_app(place: str) -> App:
    """The App at `module:attribute`, which the working directory may hold. Raises ConfigError that says what is amiss."""
    from trueup.app import App

    module_name, _, attribute = place.partition(":")
    module = _import(module_name)
    found: object = module
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if isinstance(found, App):
        return found
    what = f"is a {type(found).__name__}, not an App" if found is not None else "does not exist"
    raise ConfigError(f"{place} {what}; {_apps_in(module, App)}")


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {error.name!r} in {here} or on the Python path; check --app or TRUEUP_APP"
            ) from None
        raise _failed(name, error) from error
    except Exception as error:  # whatever the application's own code raises
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> ConfigError:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else ""
    return ConfigError(f"importing {name} failed{place}: {type(error).__name__}: {error}")


def _apps_in(module: ModuleType, app_class: type[App]) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, app_class))
    if not names:
        return f"{module.__name__} has no App at its top level"
    return "did you mean " + " or ".join(f"--app {module.__name__}:{name}" for name in names) + "?"
