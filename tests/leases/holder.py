"""A process that holds a lease: `python -m tests.leases.holder URL BACKEND REDIS_URL`.

Prints "held" when it has it. At a line on its input it writes its term to the table `written`, fenced, and prints how that ended.
"""

from __future__ import annotations

import sys

import psycopg

from trueup import App, LostLease


def main(url: str, backend: str, redis_url: str) -> None:
    app = App(url, redis_url=redis_url or None)
    try:
        with app.lease_sync("nightly", ttl="1s", backend=backend) as lease, psycopg.connect(url) as tx:
            print("held", flush=True)
            sys.stdin.readline()
            tx.execute("insert into written (term) values (%s)", [lease.term])
            lease.fence_sync(tx)
    except LostLease:
        print("lost")
    else:
        print("written")
    app.close_sync()


if __name__ == "__main__":
    main(*sys.argv[1:])
