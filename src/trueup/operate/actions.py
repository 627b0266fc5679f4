"""Reading what people did: `app.actions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError
from trueup.operate.given import check_limit, number_of
from trueup.operate.operating import Operating, twin
from trueup.store.actions import ActionRecord
from trueup.store.store import Store
from trueup.store.views import MAX_ID

MAX_LIST = 1_000  # in one page
VIAS = ("cli", "python", "web")
WHATS = ("job", "queue", "kind", "schedule", "reconciler", "row")
NAMES = (
    *("cancel", "retry", "hurry", "revive", "discard", "pause", "resume", "trigger", "backfill"),
    *("create", "edit", "retire", "rewind", "delete", "run", "release", "forget"),
)


@dataclass(frozen=True, slots=True)
class ActionPage:
    """Actions, newest first; `next` is the `after` of the following page, None after the last one."""

    actions: tuple[ActionRecord, ...]
    next: int | None

    def __iter__(self) -> Iterator[ActionRecord]:
        return iter(self.actions)

    def __len__(self) -> int:
        return len(self.actions)


class ActionOperations(Operating):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._actions = store.actions

    async def list(
        self,
        *,
        actor: str | None = None,
        via: str | None = None,
        action: str | None = None,
        what: str | None = None,
        name: str | None = None,
        job: int | None = None,
        within: Duration | None = None,
        limit: int = 50,
        after: int | None = None,
    ) -> ActionPage:
        """A page of people's actions, newest first, that match all given conditions.

        `job` is the id of an affected job; of each action, only the first hundred ids are recorded. Raises ConfigError for a `via`,
        `what` or `action` that no record has.
        """
        _check_known("via", via, VIAS)
        _check_known("what", what, WHATS)
        _check_known("action", action, NAMES)
        check_limit("limit", limit, MAX_LIST)
        found = await self._actions.list(
            limit=limit + 1,
            before=MAX_ID if after is None else number_of(after),
            within_s=None if within is None else duration_of("within", within).total_seconds(),
            actor=actor,
            via=via,
            action=action,
            what=what,
            name=name,
            key=None if job is None else str(number_of(job)),
        )
        page = tuple(found[:limit])
        return ActionPage(page, page[-1].id if len(found) > limit else None)

    list_sync = twin(list)


def _check_known(condition: str, given: str | None, known: tuple[str, ...]) -> None:
    if given is not None and given not in known:
        raise ConfigError(f"{condition} {given!r}: there are {', '.join(known)}")
