"""What every event is: a value that cannot be changed, with a name that stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    name: ClassVar[str]
