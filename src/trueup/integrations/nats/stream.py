"""The stream and the configuration that it needs so that a repeated attempt is recognised. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from nats.js.api import StreamConfig

from trueup.backoff import MAX_ATTEMPTS, Retry
from trueup.config import Settings
from trueup.durations import Duration, format_duration, parse_duration
from trueup.errors import ConfigError
from trueup.integrations.nats.subjects import checked_patterns, covers

MIN_WINDOW = timedelta(minutes=2)  # the server's default
MARGIN = timedelta(minutes=1)  # for delays that are not counted: a queue, a slow commit, a second crash

_NAME = re.compile(r"[^\s.*>/\\]{1,200}")
_OURS = ("name", "subjects", "duplicate_window", "no_ack")


@dataclass(frozen=True)
class Stream:
    """A stream's name, the subjects it takes, and for how long it remembers the ids of messages.

    Without `duplicate_window` it is as long as the retries need. `config`, of nats-py, says everything else (limits, replicas,
    storage); it applies when the stream is created, and never changes an existing one. Raises ConfigError.
    """

    name: str
    subjects: Sequence[str]
    duplicate_window: Duration | None = None
    config: StreamConfig | None = None
    _window: timedelta | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name) or not self.name.isprintable():
            raise ConfigError(
                f"stream {self.name!r:.80}: a name without blanks and without any of . * > / \\ is needed"
            )
        try:
            object.__setattr__(self, "subjects", checked_patterns(self.subjects))
            window = None if self.duplicate_window is None else parse_duration(self.duplicate_window)
        except ConfigError as error:
            raise ConfigError(f"stream {self.name}: {error}") from None
        object.__setattr__(self, "_window", window)
        named = [name for name in _OURS if self.config is not None and getattr(self.config, name)]
        if named:
            raise ConfigError(f"stream {self.name}: {named[0]} is not for config=; a stream must acknowledge, too")

    def window(self, retry: Retry, settings: Settings, timeout: timedelta) -> timedelta:
        """How long ids are remembered. Raises ConfigError unless that is longer than the longest gap between two attempts."""
        gap = longest_gap(retry, settings, timeout)
        if self._window is None:
            return max(MIN_WINDOW, gap + MARGIN)
        if self._window <= gap:
            raise ConfigError(
                f"stream {self.name}: duplicate_window={format_duration(self._window)} must be longer than"
                f" {format_duration(gap)}, the longest gap between two attempts to publish"
                " (the longest delay of retry=, twice timeout=, lease_for and rescue_every)"
            )
        return self._window

    def takes(self, subject: str) -> bool:
        return any(covers(pattern, subject) for pattern in self.subjects)

    def created(self, window: timedelta) -> dict[str, Any]:
        """The request to create the stream."""
        config = self.config or StreamConfig()
        config = config.evolve(
            name=self.name, subjects=list(self.subjects), duplicate_window=window / timedelta(seconds=1)
        )
        return config.as_dict()

    def adjusted(self, found: Mapping[str, Any], window: timedelta, *, update: bool) -> dict[str, Any]:
        """The configuration that an existing stream needs, as the server writes it; equal to `found` if it fits.

        Ids are remembered longer if need be, never shorter. Missing subjects are added with `update`; other subjects of the
        stream belong to others. Raises ConfigError when the stream cannot be used.
        """
        if found.get("no_ack"):
            raise ConfigError(
                f"stream {self.name}: it has no_ack, so publishers never learn whether a message was stored"
            )
        if found.get("mirror") or found.get("sealed"):
            raise ConfigError(f"stream {self.name}: it is a mirror or sealed, and nothing can be published to it")
        theirs = list(found.get("subjects") or ())
        missing = [subject for subject in self.subjects if not any(covers(other, subject) for other in theirs)]
        if missing and not update:
            raise ConfigError(
                f"stream {self.name}: it accepts {', '.join(theirs) or 'nothing'}, but not {', '.join(missing)};"
                " ensure_stream(update=True) adds them"
            )
        kept = [other for other in theirs if not any(covers(subject, other) for subject in missing)]
        changed = {**found, "subjects": kept + missing} if missing else dict(found)
        return changed | {"duplicate_window": max(found.get("duplicate_window", 0), nanoseconds(window))}


def longest_gap(retry: Retry, settings: Settings, timeout: timedelta) -> timedelta:
    """How long after a message was sent, without the ack, it may be sent again while there are workers.

    An attempt fails, the next one waits for its longest delay, dies with its worker, and is taken over. The caller of `enqueue` may
    ask for more attempts than `retry` has, so that the delay is the longest of any number.
    """
    return retry.delay(MAX_ATTEMPTS) + 2 * timeout + settings.lease_for + settings.rescue_every


def nanoseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1) * 1_000
