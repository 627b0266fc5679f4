"""What is given in place of ids and keys, by mistake: it is refused, and nothing is acted on."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import pytest_asyncio

from trueup import App, ConfigError, NotFound, Row, To
from trueup.operate.given import number_of

pytestmark = pytest.mark.asyncio

ON_JOBS = ("cancel", "retry", "hurry", "revive", "discard")
NO_LISTS: tuple[Any, ...] = ("12", b"12", 12, None, {1: 2})
NO_IDS: tuple[Any, ...] = ("one", None, True, 1.5, "1 ", "-1", "1" * 5000)
NO_KEYS: tuple[Any, ...] = (12, None, b"12", ("12",))


@pytest_asyncio.fixture
async def shop(app: App, database_url: str) -> App:
    """With the queued jobs 1 to 20, and the rows 1 and 2 in quarantine."""

    @app.job
    async def send(to: int) -> None: ...

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table papers (id int primary key, state text, changed_at timestamptz default now())")

    @app.table("papers", key="id", state="state", changed_at="changed_at").reconcile("new", every="1h")
    async def file(row: Row) -> To:
        return To("filed")

    async with app.transaction() as tx:
        await send.using(tx=tx).enqueue_many([(to,) for to in range(20)])
        await tx.execute(
            "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, changed_at, claimed_at, was_state)"
            " select 'file', n::text, 'quarantined', now(), 1, 1, now(), now(), 'new' from generate_series(1, 2) as n"
        )
    return app


def state(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        jobs = connection.execute("select id, state, run_at from trueup.jobs order by id").fetchall()
        rows = connection.execute("select key, state from trueup.rows order by key").fetchall()
        return [*jobs, *rows]


@pytest.mark.parametrize("action", ON_JOBS)
async def test_what_are_no_ids_is_refused_and_no_job_is_touched(shop: App, database_url: str, action: str) -> None:
    """The text "12" is no list: its characters are the ids of two other jobs."""
    before = state(database_url)
    for given in NO_LISTS:
        with pytest.raises(ConfigError, match=r"^ids=.*: give a list, such as \[17, 18\]$"):
            await getattr(shop.jobs, action)(given)
    for each in NO_IDS:
        with pytest.raises(ConfigError, match="is not the id of a job"):
            await getattr(shop.jobs, action)([1, each])
    assert state(database_url) == before


@pytest.mark.parametrize("action", ON_JOBS)
@pytest.mark.parametrize("given", [[], [2**62], {99}, iter(["99"])], ids=["none", "large", "set", "iterator"])
async def test_ids_of_no_job_are_named_however_they_are_given(shop: App, action: str, given: Any) -> None:
    with pytest.raises(NotFound, match=r"no ids|99|4611686018427387904"):
        await getattr(shop.jobs, action)(given)


CONDITIONS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("kind", "queue", "schedule", "error_contains"), ("", 5, b"send", ["send"], True)),
    "min_attempts": (-1, "3", None, True, 1.5, 2**31),
    "arguments": ({}, "to=3", [("to", 3)], {3: 3}, 3),
    "older_than": ("", "soon", True, [1]),
}


@pytest.mark.parametrize("name", CONDITIONS)
async def test_what_is_no_condition_is_refused_and_no_job_is_touched(shop: App, database_url: str, name: str) -> None:
    """It would be ignored, or found in every job: `error_contains=os.environ.get("CAUSE", "")`."""
    before = state(database_url)
    for given in CONDITIONS[name]:
        for act in ("list", "count", "cancel_all", "revive_all", "discard_all", "hurry_all"):
            with pytest.raises(ConfigError, match=f"^{name}="):
                await getattr(shop.jobs, act)(**{name: given})
    assert state(database_url) == before


async def test_what_is_no_state_is_refused(shop: App) -> None:
    for given in (5, "", ["dead", 5], {"dead": 1}, b"dead", [], (), set()):
        with pytest.raises(ConfigError, match=r"^state"):
            await shop.jobs.count(state=given)
    with pytest.raises(TypeError, match=r"takes no stat; did you mean state\?"):
        await shop.jobs.count(stat="dead")  # type: ignore[call-arg]


@pytest.mark.parametrize("action", ["release", "discard"])
async def test_what_are_no_keys_is_refused_and_no_row_is_touched(shop: App, database_url: str, action: str) -> None:
    before = state(database_url)
    for given in NO_LISTS:
        with pytest.raises(ConfigError, match=r"^keys=.*: give a list, such as \['17', '18'\]$"):
            await getattr(shop.reconcilers, action)("file", given)
    for each in NO_KEYS:
        with pytest.raises(ConfigError, match="is not the key of a row"):
            await getattr(shop.reconcilers, action)("file", ["1", each])
    assert state(database_url) == before


async def test_one_id_and_one_key_are_checked_alike(shop: App) -> None:
    for each in NO_IDS:
        with pytest.raises(ConfigError, match="is not the id of a job"):
            await shop.jobs.get(each)
    for each in (*NO_IDS[:1], *NO_IDS[2:]):
        with pytest.raises(ConfigError, match="is not the id of a job"):
            await shop.jobs.list(after=each)
        with pytest.raises(ConfigError, match="is not the id of a job"):
            await shop.actions.list(job=each)
    for each in NO_KEYS:
        with pytest.raises(ConfigError, match="is not the key of a row"):
            await shop.reconcilers.quarantined_row("file", each)


async def test_a_handle_and_a_number_that_is_written_out_are_ids(shop: App) -> None:
    handle = await shop.named("send").enqueue(1)
    assert number_of(handle) == number_of(str(int(handle))) == int(handle)
    assert (await shop.jobs.cancel([handle, "3"])).cancelled == {int(handle), 3}  # type: ignore[list-item]


async def test_a_limit_that_is_none_is_refused_before_postgresql_is_asked(shop: App) -> None:
    for given in (-1, "5", None, True, 1.5, 2**70):
        for asked in (
            lambda limit: shop.jobs.list(limit=limit),
            lambda limit: shop.actions.list(limit=limit),
            lambda limit: shop.reconcilers.quarantined(limit=limit),
            lambda limit: shop.reconcilers.show("file", limit),
            lambda limit: shop.schedules.show("none", limit),
        ):
            with pytest.raises(ConfigError, match=r"^(limit|sweeps|ticks)=.*: from [01] to 10*,000$"):
                await asked(given)
