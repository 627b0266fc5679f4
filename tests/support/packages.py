"""What a requirement brings along, by the metadata of the packages that are installed here."""

from __future__ import annotations

import re
from importlib.metadata import requires

from packaging.requirements import Requirement


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(wanted: set[str]) -> set[str]:
    """These distributions, and what they require."""
    found: set[str] = set()
    waiting = [Requirement(each) for each in wanted]
    while waiting:
        requirement = waiting.pop()
        name = canonical(requirement.name)
        marked = f"{name}[{','.join(sorted(requirement.extras))}]"
        if marked in found:
            continue
        found |= {marked, name}
        for each in map(Requirement, requires(requirement.name) or ()):
            extras = requirement.extras or {""}
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(each)
    return found
