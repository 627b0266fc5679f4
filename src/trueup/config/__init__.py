"""Settings: what they are, where they come from, and what is wrong with them.

An explicit argument beats a `TRUEUP_*` variable, which beats a key of `trueup.toml` or of `[tool.trueup]` in
`pyproject.toml`, which beats the default. The class `Settings` is the table of all of them: name, default, kind of value,
meaning. Variables, checks, `describe` and the reference page follow from it, which is why no settings library is used.
"""

from __future__ import annotations

from trueup.config.kinds import CHECKS, Kind, redis_urls
from trueup.config.load import NOT_SETTINGS, load_settings
from trueup.config.settings import DEFAULT, PREFIX, SETTINGS, Setting, Settings, ShownSetting, describe, setting

__all__ = [
    "CHECKS",
    "DEFAULT",
    "NOT_SETTINGS",
    "PREFIX",
    "SETTINGS",
    "Kind",
    "Setting",
    "Settings",
    "ShownSetting",
    "describe",
    "load_settings",
    "redis_urls",
    "setting",
]
