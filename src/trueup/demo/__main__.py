"""`python -m trueup.demo`: the same as `trueup demo`."""

from __future__ import annotations

import argparse
import sys

from trueup.demo.story import run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="trueup demo", description=run.__doc__.splitlines()[0] if run.__doc__ else None
    )
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--rate", type=int, default=60, help="messages a second, at most")
    parser.add_argument("--keep", action="store_true", help="let everything run on afterwards, until Ctrl-C")
    parser.add_argument("--plain", action="store_true", default=None, help="plain lines even on a terminal")
    given = parser.parse_args()
    return run(workers=given.workers, users=given.users, rate=given.rate, keep=given.keep, plain=given.plain)


if __name__ == "__main__":
    sys.exit(main())
