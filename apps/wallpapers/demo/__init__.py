"""`python -m apps.wallpapers demo`: uploads that break off everywhere, servers that go down, and books that balance at the end."""

from __future__ import annotations

from .story import demo

__all__ = ["demo"]
