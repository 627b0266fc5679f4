"""The directory of a shared server (`./.trueup`): where its users, its keeper and its data meet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trueup.embedded import locks
from trueup.embedded.private import make_private

DATABASE = "trueup"

# What the keeper writes into its lock. A keeper that was killed leaves any of the others behind, and never LEFT.
STARTING = ""
READY = "ready"
FAILED = "failed: "  # and why; the keeper goes on trying
LEFT = "left"


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
        """Held by the keeper all its life, so there is at most one; its content is the keeper's state."""
        return self.directory / "keeper.lock"

    @property
    def keeper_log(self) -> Path:
        return self.directory / "keeper.log"

    @property
    def stopping(self) -> Path:
        """Exists while a user stops the server, so that the keeper does not take its end for a crash."""
        return self.directory / "stopping"

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

    def keeper_says(self) -> str:
        """The last state that the current or previous keeper wrote."""
        try:
            return self.keeper.read_text(errors="replace")
        except FileNotFoundError:
            return LEFT

    def keeper_was_killed(self) -> bool:
        """Whether there is no keeper, although the last one did not leave in order."""
        return not self.has_keeper() and self.keeper_says() != LEFT
