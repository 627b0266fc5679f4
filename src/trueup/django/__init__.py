"""trueup in a Django project: `"trueup.django"` in INSTALLED_APPS, and `from trueup.django import app` in `jobs.py`.

The App is made from settings: the database is one of `DATABASES`, everything else is in `TRUEUP`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trueup.django.application import DjangoApp

    app: DjangoApp

__all__ = ["app", "get_app"]


def get_app() -> DjangoApp:
    """The project's App. The first call makes it from settings; a plain script's also sets Django up."""
    from trueup.django.application import project_app

    return project_app()


def __getattr__(name: str) -> Any:
    if name == "app":
        return get_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
