"""Jobs of a batch that are read once, and can be read again while they are few: for a transaction that is repeated as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from trueup.jobs.job import Draft

MAX_BYTES = 4 * 1024 * 1024  # of what is kept; a longer batch stays within bounded memory, and is not repeated
EACH = 400  # bytes that a job takes besides its texts


class Replay:
    def __init__(self, drafts: Iterator[Draft]) -> None:
        self._rest = drafts
        self._kept: list[Draft] = []
        self._size = 0

    def possible(self) -> bool:
        """Whether all that was read can be read again."""
        return self._size <= MAX_BYTES

    def __iter__(self) -> Iterator[Draft]:
        """From the beginning, and then on from where the source was left."""
        yield from tuple(self._kept)
        for draft in self._rest:
            self._size += len(draft.args) + len(draft.meta or "") + EACH
            if self.possible():
                self._kept.append(draft)
            else:
                self._kept.clear()
            yield draft
