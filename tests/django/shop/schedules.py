from __future__ import annotations

from trueup.django import app


@app.cron("0 3 * * *")
def nightly() -> None:
    pass
