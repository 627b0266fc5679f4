"""The progress of a scan: which of its cursors may be stored, although items are handled in another order than they were found.

Consecutive items with the same cursor are a group. The cursor of a group says where to continue after the group, or where the group
begins: generators do both. So it may be stored only when the group is known to be complete (because another cursor or the end came),
and when all its items, and those of the groups before it, are handled.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MERGE_AT = 64  # groups; and then at twice of what was left, so that the cost per item stays small


@dataclass(frozen=True, slots=True)
class Point:
    """A cursor as JSON (None: the beginning), and how many items were handled up to it."""

    cursor: str | None
    items: int
    failed: int


@dataclass(slots=True, eq=False)
class Group:
    cursor: str | None
    items: int = 0
    open_items: int = 0
    failed: int = 0
    complete: bool = False

    @property
    def done(self) -> bool:
        return self.complete and self.open_items == 0


class Progress:
    """Takes no more memory than a few times the items that are being handled, however long the first of them takes."""

    def __init__(self, start: Point) -> None:
        self.point = start  # what may be kept
        self.beyond = 0  # items handled up to it since it was kept
        self._moved = False
        self._groups: deque[Group] = deque()
        self._merge_at = MERGE_AT

    @property
    def moved(self) -> bool:
        """Whether there is progress to store."""
        return self._moved

    @property
    def settled(self) -> bool:
        """Whether everything that was found is handled and counted in the point."""
        return not self._groups

    def found(self, cursor: str | None) -> Group:
        """An item with this cursor was yielded. Hand the group back when it is handled."""
        latest = self._groups[-1] if self._groups else None
        if latest is None or latest.complete or latest.cursor != cursor:
            if latest is not None:
                latest.complete = True
                self._advance()
                self._merge()
            latest = Group(cursor)
            self._groups.append(latest)
        latest.items += 1
        latest.open_items += 1
        return latest

    def handled(self, group: Group, *, failed: bool = False) -> None:
        group.open_items -= 1
        group.failed += failed
        self._advance()

    def ended(self) -> None:
        """The generator has ended, so the group of the latest cursor is complete."""
        if self._groups:
            self._groups[-1].complete = True
            self._advance()

    def kept(self, point: Point) -> None:
        """This point was stored; the scan may be further by now."""
        self.beyond = self.point.items - point.items
        self._moved = self.point != point

    def _advance(self) -> None:
        while self._groups and self._groups[0].done:
            group = self._groups.popleft()
            point = self.point
            self.point = Point(group.cursor, point.items + group.items, point.failed + group.failed)
            self.beyond += group.items
            self._moved = True

    def _merge(self) -> None:
        """Groups that are done and wait behind one that is not will be passed together: only the last one's cursor counts."""
        if len(self._groups) < self._merge_at:
            return
        merged: deque[Group] = deque()
        for group in self._groups:
            if merged and merged[-1].done and group.done:
                before = merged.pop()
                group = Group(group.cursor, before.items + group.items, 0, before.failed + group.failed, complete=True)
            merged.append(group)
        self._groups = merged
        self._merge_at = max(MERGE_AT, 2 * len(merged))
