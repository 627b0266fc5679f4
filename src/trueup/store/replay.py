"""Jobs of a batch that can be read again, for a transaction that is repeated as a whole.

A list is simply read again. Of an iterator, jobs are kept while they are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trueup.jobs.job import Draft

MAX_BYTES = 4 * 1024 * 1024  # of what is kept; a longer batch stays within bounded memory
EACH = 400  # bytes that a job takes besides its texts


class Replay:
    def __init__(self, drafts: Iterable[Draft]) -> None:
        self._source = drafts
        self._rest = iter(drafts)
        self._again = self._rest is not drafts
        self._kept: list[Draft] = []
        self._size = 0

    def possible(self) -> bool:
        """Whether all that was read can be read again. If not, it must not be."""
        return self._again or self._size <= MAX_BYTES

    def __iter__(self) -> Iterator[Draft]:
        """From the beginning, and then on from where the source was left."""
        if self._size > MAX_BYTES:
            assert self._again
            yield from self._source
            return
        yield from tuple(self._kept)
        for draft in self._rest:
            self._size += len(draft.args) + len(draft.meta or "") + EACH
            if self._size <= MAX_BYTES:
                self._kept.append(draft)
            else:
                self._kept.clear()
            yield draft
