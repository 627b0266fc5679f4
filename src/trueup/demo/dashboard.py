"""The dashboard over the demo's database: `python -m trueup.demo.dashboard PORT`."""

from __future__ import annotations

import sys

from trueup.demo import application
from trueup.demo.orphan import end_with_parent


def main(port: int) -> None:
    import uvicorn

    from trueup.web import dashboard

    pages = dashboard.asgi({"birthdays": application.build().app}, closes=True)
    uvicorn.run(pages, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    end_with_parent()
    main(int(sys.argv[1]))
