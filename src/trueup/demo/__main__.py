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
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--keep", action="store_true", help="leave the database and the logs")
    parser.add_argument("--plain", action="store_true", default=None, help="plain lines even on a terminal")
    options = parser.parse_args()
    return run(workers=options.workers, jobs=options.jobs, keep=options.keep, plain=options.plain)


if __name__ == "__main__":
    sys.exit(main())
