"""The first thing that every process of the demo does: it ensures that it does not outlive the demo."""

from __future__ import annotations

import os
import sys
import threading


def end_with_parent() -> None:
    """End this process, at once, when its standard input does: the process at the other end has gone, however that happened."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=wait, name="end with parent", daemon=True).start()
