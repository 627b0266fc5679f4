"""What every backend promises, asked of the backends themselves."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.leases.keepers import Keeper
from tests.support.waiting import wait_until
from trueup import App
from trueup.errors import LostLease
from trueup.leases.backend import LeaseBackend
from trueup.testing.clock import ManualClock

LONG = timedelta(seconds=60)
SHORT = timedelta(seconds=1)
NAME = "nightly"


def taken(backend: LeaseBackend, holder: UUID, ttl: timedelta = LONG) -> int:
    term = backend.acquire(NAME, holder, ttl)
    assert term is not None
    return term


def test_a_lease_that_is_held_is_not_given_to_another_until_it_is_released(keeper: Keeper) -> None:
    first, second = keeper.make(), keeper.make()
    holder = uuid4()
    term = taken(first, holder)
    assert second.acquire(NAME, uuid4(), LONG) is None
    first.release(NAME, holder, term)
    assert taken(second, uuid4()) > term


def test_leases_of_different_names_do_not_touch_each_other(keeper: Keeper) -> None:
    taken(keeper.make(), uuid4())
    assert keeper.make().acquire("hourly", uuid4(), LONG) is not None


def test_terms_grow_strictly_also_for_the_same_holder(keeper: Keeper) -> None:
    holder, terms = uuid4(), list[int]()
    for _ in range(4):
        backend = keeper.make()
        terms.append(taken(backend, holder))
        backend.release(NAME, holder, terms[-1])
    assert terms == sorted(set(terms))


def test_asking_in_vain_leaves_the_fence_of_the_holder_alone(keeper: Keeper) -> None:
    backend, holder = keeper.make(), uuid4()
    term = taken(backend, holder)
    assert keeper.make().acquire(NAME, uuid4(), LONG) is None
    with psycopg.connect(keeper.database_url) as tx:
        keeper.app.store.terms.fence_sync(backend.fence_name(NAME), holder, term, tx)


def test_the_fence_refuses_a_lease_that_was_given_back(keeper: Keeper) -> None:
    backend, holder = keeper.make(), uuid4()
    term = taken(backend, holder)
    backend.release(NAME, holder, term)
    with psycopg.connect(keeper.database_url) as tx, pytest.raises(LostLease):
        keeper.app.store.terms.fence_sync(backend.fence_name(NAME), holder, term, tx)


def test_the_fence_refuses_an_older_term_of_the_same_holder(keeper: Keeper) -> None:
    backend, holder = keeper.make(), uuid4()
    older = taken(backend, holder)
    backend.release(NAME, holder, older)
    newer = taken(backend, holder)
    fence = keeper.app.store.terms.fence_sync
    with psycopg.connect(keeper.database_url) as tx:
        fence(backend.fence_name(NAME), holder, newer, tx)
        with pytest.raises(LostLease):
            fence(backend.fence_name(NAME), holder, older, tx)


def test_only_holder_and_term_together_renew_and_release(keeper: Keeper) -> None:
    mine, other = keeper.make(), keeper.make()
    holder = uuid4()
    term = taken(mine, holder)
    for wrong in ((uuid4(), term), (holder, term + 1), (holder, term - 1)):
        assert not other.renew(NAME, *wrong, LONG)
        other.release(NAME, *wrong)
    assert mine.renew(NAME, holder, term, LONG)
    assert keeper.make().acquire(NAME, uuid4(), LONG) is None


def test_a_lease_that_has_passed_is_not_renewed_though_nobody_took_it(database_url: str) -> None:
    clock = ManualClock()
    app = App(database_url, clock=clock)
    backend, holder = app._leasing.backend("postgres", None), uuid4()
    try:
        term = taken(backend, holder)
        clock.advance(seconds=LONG.total_seconds() - 1)
        assert backend.renew(NAME, holder, term, LONG)
        clock.advance(seconds=LONG.total_seconds())
        assert not backend.renew(NAME, holder, term, LONG)
    finally:
        backend.close()
        app.close_sync()


def test_a_holder_that_died_is_followed_by_a_later_term_and_cannot_come_back(keeper: Keeper) -> None:
    dead, heir = keeper.make(), keeper.make()
    holder, next_holder = uuid4(), uuid4()
    term = taken(dead, holder, SHORT)
    keeper.die(dead)
    terms: list[int] = []
    wait_until(lambda: terms.extend(filter(None, [heir.acquire(NAME, next_holder, LONG)])) or terms, "it is free")
    assert terms[0] > term
    assert not dead.renew(NAME, holder, term, LONG)
    dead.release(NAME, holder, term)
    assert heir.renew(NAME, next_holder, terms[0], LONG), "the late release did not touch it"


@pytest.mark.slow
def test_renewing_keeps_it_past_its_ttl(keeper: Keeper) -> None:
    mine, other = keeper.make(), keeper.make()
    holder = uuid4()
    term = taken(mine, holder, SHORT)
    renewed: list[bool] = []

    def twice_its_ttl() -> bool:
        renewed.append(mine.renew(NAME, holder, term, SHORT))
        return other.acquire(NAME, uuid4(), SHORT) is not None

    with pytest.raises(TimeoutError):
        wait_until(twice_its_ttl, "somebody else gets it", timeout=2 * SHORT.total_seconds())
    assert all(renewed)


def test_what_its_keeper_forgot_is_not_renewed(keeper: Keeper) -> None:
    mine = keeper.make()
    holder = uuid4()
    term = taken(mine, holder)
    keeper.forget(NAME)
    assert not mine.renew(NAME, holder, term, LONG)
