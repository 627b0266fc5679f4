"""What `trueup --app apps.addresses.app:app …` works with: the App as the environment configures it."""

from __future__ import annotations

from .service import build_configured

app = build_configured().app
