"""Moments as tests write them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime


def utc(written: str) -> datetime:
    """The moment of UTC that is written like 2026-03-29T01:00."""
    return datetime.fromisoformat(written).replace(tzinfo=UTC)


def written(moments: Iterable[datetime | None]) -> list[str]:
    """Moments of UTC to the minute, or to the second where there are any."""
    return ["none" if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S}".removesuffix(":00") for moment in moments]
