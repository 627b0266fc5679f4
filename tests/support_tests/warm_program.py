"""What `test_warm.py` starts: does what its first argument says, and tells about the process it is."""

from __future__ import annotations

import atexit
import json
import os
import random
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

match sys.argv[1]:
    case "tell":
        print(
            json.dumps(
                {
                    "argv": sys.argv[2:],
                    "main": sys.modules["__main__"].__spec__.name if sys.modules["__main__"].__spec__ else None,
                    "environment": dict(os.environ),
                    "directory": str(Path.cwd()),
                    "path": sys.path[0],
                    "pid": os.getpid(),
                    "random": random.random(),
                    "threads": threading.active_count(),
                    "files": len(list(Path("/proc/self/fd").iterdir())),
                    "interrupted by": str(signal.getsignal(signal.SIGINT)),
                    "options": sys.warnoptions,
                }
            )
        )
        print("aside", file=sys.stderr)
    case "exit":
        atexit.register(print, "the end")
        sys.exit(int(sys.argv[2]))
    case "raise":
        raise ValueError("of its own")
    case "warn":
        warnings.warn("an error here", RuntimeWarning, stacklevel=1)
    case "thread":
        threading.Thread(target=lambda: (time.sleep(0.1), print("of a thread", flush=True))).start()
    case "echo":
        print(sys.stdin.read())
    case "fault":
        from trueup import faults

        if faults._armed:
            faults.hit("after_claim")
    case "sleep":
        print("here", flush=True)
        time.sleep(60)
