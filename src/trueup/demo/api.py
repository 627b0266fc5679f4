"""The application's HTTP API, with a worker in the same process: `python -m trueup.demo.api PORT`."""

from __future__ import annotations

import sys

from trueup.demo import application
from trueup.demo.orphan import end_with_parent


def main(port: int) -> None:
    import uvicorn

    api = application.part("api").make_api(application.build(), embedded_worker=True)
    uvicorn.run(api, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    end_with_parent()
    main(int(sys.argv[1]))
