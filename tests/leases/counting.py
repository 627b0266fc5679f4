"""A process that counts under a lease: `python -m tests.leases.counting URL BACKEND REDIS_URL FILE TIMES`.

Reading and writing the number are two steps with a pause between, so that only a lease keeps the count right. Prints a JSON
line per holding.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from trueup import App


def main(url: str, backend: str, redis_url: str, file: str, times: str) -> None:
    app = App(url, redis_url=redis_url or None)
    number = Path(file)
    for _ in range(int(times)):
        with app.lease_sync("counter", ttl="5s", wait="30s", backend=backend) as lease:
            before = int(number.read_text())
            time.sleep(0.02)  # long enough for every other process to read the same number
            number.write_text(str(before + 1))
            print(json.dumps({"holder": str(lease.holder), "term": lease.term}))
    app.close_sync()


if __name__ == "__main__":
    main(*sys.argv[1:])
