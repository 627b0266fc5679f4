"""System checks: `manage.py check` says what is wrong with settings.TRUEUP."""

from __future__ import annotations

from typing import Any

from django.core.checks import Error, register

from trueup.errors import ConfigError


@register("trueup")
def check_settings(**_: Any) -> list[Error]:
    from trueup.django import get_app
    from trueup.django.database import database_url

    try:
        database_url(get_app().alias)
    except ConfigError as error:
        return [Error(str(error), id="trueup.E001")]
    return []
