"""The directory of a shared server (`./.trueup`): where its users, its keeper and its data meet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trueup.embedded import locks
from trueup.embedded.private import make_private

DATABASE = "trueup"
READY = "ready"


@dataclass(frozen=True)
class Home:
    directory: Path

    @property
    def users(self) -> Path:
        """Held shared by every user of the server, and exclusively by the keeper while it stops the server."""
        return self.directory / "users.lock"

    @property
    def arrivals(self) -> Path:
        """Held by the one process that is starting, joining or stopping the server at the moment."""
        return self.directory / "arrivals.lock"

    @property
    def keeper(self) -> Path:
        """Held by the keeper all its life, so there is at most one; says `ready` once the server can be used."""
        return self.directory / "keeper.lock"

    @property
    def keeper_log(self) -> Path:
        return self.directory / "keeper.log"

    @property
    def kept(self) -> Path:
        """Exists while the server is to run on without users."""
        return self.directory / "kept"

    @property
    def cluster(self) -> Path:
        return self.directory / "postgres"

    def prepare(self) -> None:
        """Make the directory: private, and invisible to git. Raises ConfigError when that cannot be done."""
        make_private(self.directory)
        ignored = self.directory / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*\n")

    def has_keeper(self) -> bool:
        return locks.is_locked(self.keeper)

    def keeper_is_ready(self) -> bool:
        return self.has_keeper() and self.keeper.read_text() == READY
