"""The receiver of the messages, a third party's server: `python -m trueup.demo.receiver PORT JOURNAL`."""

from __future__ import annotations

import sys
from pathlib import Path

from trueup.demo import application
from trueup.demo.orphan import end_with_parent
from trueup.demo.people import UNWANTED

ANSWER_AFTER = 0.15  # seconds: so there is always a message that has arrived and whose sender does not know it yet


def main(port: int, journal: Path) -> None:
    import uvicorn

    sink = application.part("sink")
    api = sink.make_sink(sink.Sink(journal=journal, unwanted=[UNWANTED]), answer_after=ANSWER_AFTER)
    uvicorn.run(api, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    end_with_parent()
    main(int(sys.argv[1]), Path(sys.argv[2]))
