"""The script `trueup`, and `python -m trueup.cli` for where it is not on the path."""

from __future__ import annotations

import sys


def main() -> int:
    try:
        from trueup.cli.main import main as run  # here, because importing all commands is long enough for a Ctrl-C
    except KeyboardInterrupt:
        return 130  # as errors.INTERRUPTED
    return run()


if __name__ == "__main__":
    sys.exit(main())
