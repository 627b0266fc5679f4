"""A file system of a few megabytes, for servers that run out of room.

A tmpfs in a mount namespace of its own, which root and ordinary users may both make, where namespaces are not forbidden. It is
the real thing: what is written to it fails with ENOSPC, as on a full disk. (A limit on the size of files would fail with
another error, and on files that a server makes whole, as its log of changes, not at all.) Only programs started in `way` see
it, and it is gone with this process.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

from trueup.embedded.nonroot import NAMESPACE, Way

MOUNT = 'mount -t tmpfs -o size="$1",mode=0777 tmpfs "$0" && echo mounted && exec cat'


class SmallDisk:
    def __init__(self, place: Path, size: str) -> None:
        self.place = place
        self._size = size

    def __enter__(self) -> Self:
        """Raises RuntimeError where namespaces are forbidden."""
        self.place.mkdir(parents=True, exist_ok=True)
        private = ["unshare", "--user", "--map-root-user", "--mount"]
        self._holder = subprocess.Popen(  # waits for its input to end, and so for us
            [*private, "sh", "-c", MOUNT, str(self.place), self._size], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            self.__exit__()
            raise RuntimeError("no file system can be mounted here: user and mount namespaces are needed")
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    @property
    def way(self) -> Way:
        """How PostgreSQL's programs are started so that they see it. They believe to be `nobody`; the files stay ours."""
        enter = ("nsenter", "--target", str(self._holder.pid), "--user", "--mount", "--preserve-credentials")
        return Way(prefix=(*enter, *NAMESPACE))

    def run(self, script: str, *arguments: object) -> None:
        """Run a shell script that sees it, with these as `$1` and so on."""
        given = [str(argument) for argument in arguments]
        subprocess.run([*self.way.prefix, "sh", "-ec", script, "sh", *given], check=True, stdin=subprocess.DEVNULL)
