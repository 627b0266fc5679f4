"""Checks the names of queues, kinds, schedules, reconcilers, leases and rates."""

from __future__ import annotations

import re

from trueup.errors import ConfigError
from trueup.jobs.limits import LANE_PREFIX

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-/]{0,199}")


def checked_name(what: str, name: str) -> str:
    if name == "<lambda>":
        raise ConfigError(f"{what}: a lambda has no name; give name=, or write a def")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"{what} {name!r}: letters, digits and _ . : - / are allowed, up to 200, not starting with {LANE_PREFIX!r} or a sign"
        )
    return name
