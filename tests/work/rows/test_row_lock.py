"""claim='row_lock', one row after the other on a connection: what ends one locks the next, whatever becomes of either."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tests.work.rows.field import Field
from trueup import App, Retry, To
from trueup.events import RowRetried, RowUndone
from trueup.store.db import message
from trueup.work.rows.held import RowInHand

pytestmark = pytest.mark.asyncio

Tx = psycopg.AsyncConnection[Any]


async def done(row: Any) -> Any:
    return To("done")


async def locked_by_others(field: Field) -> int:
    """Rows that somebody still has locked."""
    free = await field.ask("select id from things for update skip locked")
    return int(await field.value("select count(*) from things")) - len(free)


async def test_a_message_for_each_row_and_one_to_begin_with(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    await field.put(20)
    field.fix(done, claim="row_lock", concurrency=1)
    await field.gather()
    sent: list[int] = []
    send = message.send

    async def counted(connection: Any, *parts: Any) -> Any:
        if not any(isinstance(part, bytes) and b"lock_timeout" in part for part in parts):  # claims and settlements
            sent.append(len(parts))
        return await send(connection, *parts)

    monkeypatch.setattr("trueup.work.rows.row_lock.message.send", counted)
    counts = await field.sweep()
    assert counts.changed == 20
    assert sent == [3, *[7] * 19, 2]  # between two rows, the session is put right
    assert await field.states() == {"done": 20}


async def test_no_more_handlers_and_no_more_connections_than_places(field: Field) -> None:
    running, peak, connections = 0, 0, set()

    async def handler(row: Any, *, tx: Tx) -> Any:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        connections.add(tx.info.backend_pid)
        await asyncio.sleep(0.002)
        running -= 1
        return To("done") if row.id % 3 else None

    await field.put(60)
    field.fix(handler, claim="row_lock", concurrency=4, batch=10)
    counts = await field.sweep()
    assert (counts.changed, counts.unchanged) == (40, 20)
    assert (peak, len(connections)) == (4, 4)
    assert await locked_by_others(field) == 0


@pytest.mark.parametrize("fails", ["to be handled", "to be written", "to be committed", "to be as it was read"])
async def test_a_row_that_fails_leaves_the_next_one_to_be_handled(field: Field, fails: str) -> None:
    await field.do("alter table log add constraint one unique (said) deferrable initially deferred")
    await field.do("insert into log values (0, 'said')")

    async def handler(row: Any, *, tx: Tx) -> Any:
        if row.id % 2:
            return To("done")
        if fails == "to be handled":
            raise ValueError("boom")
        if fails == "to be committed":
            await tx.execute("insert into log values (%s, 'said')", (row.id,))
        if fails == "to be as it was read":
            await tx.execute("update things set changed_at = now() where id = %s", (row.id,))
        return To("done", n=5000 if fails == "to be written" else 1)

    await field.put(7)
    field.fix(handler, claim="row_lock", concurrency=1)
    counts = await field.sweep()
    assert (counts.changed, counts.retry, counts.settled) == (4, 3, 7)
    assert sorted(event.key for event in field.events.of(RowRetried)) == ["2", "4", "6"]
    assert await field.states() == {"done": 4, "new": 3}
    assert await locked_by_others(field) == 0


@pytest.mark.parametrize("theirs", ["delete from things where id = 2", "update things set state = 'else' where id = 2"])
async def test_a_next_row_that_is_not_there_any_more_is_passed_over(field: Field, theirs: str) -> None:
    called: list[int] = []

    async def handler(row: Any) -> Any:
        called.append(row.id)
        if row.id == 1:
            await field.do(theirs)
        return To("done")

    await field.put(3)
    field.fix(handler, claim="row_lock", concurrency=1)
    counts = await field.sweep()
    assert (counts.changed, counts.conflict, counts.settled) == (2, 1, 3)
    assert called == [1, 3]
    assert [await field.known(n) for n in (1, 2, 3)] == [None] * 3


async def test_a_next_row_that_somebody_has_locked_is_passed_over(field: Field) -> None:
    async with await psycopg.AsyncConnection.connect(field.app.store.url) as user:

        async def handler(row: Any) -> Any:
            if row.id == 1:
                await user.execute("select from things where id = 2 for update")
            return To("done")

        await field.put(3)
        field.fix(handler, claim="row_lock", concurrency=1)
        counts = await field.sweep()
        assert (counts.changed, counts.unchanged) == (2, 1)
        await user.rollback()
    assert (await field.sweep()).changed == 1


async def test_a_connection_that_breaks_takes_one_row_with_it_and_not_the_next(field: Field) -> None:
    async def handler(row: Any, *, tx: Tx) -> Any:
        if row.id == 2 and not await field.value("select count(*) from log"):
            await field.do("insert into log values (2, 'broken')")
            await field.do("select pg_terminate_backend(%s)", (tx.info.backend_pid,))
        return To("done")

    await field.put(4)
    field.fix(handler, claim="row_lock", concurrency=1)
    counts = await field.sweep()
    assert counts.changed == 3
    assert [row["id"] for row in await field.ask("select id from things where state = 'done' order by 1")] == [1, 3, 4]
    assert await locked_by_others(field) == 0


async def test_an_outcome_that_a_trigger_undoes_is_a_failed_attempt(field: Field) -> None:
    await field.do(
        "create function never() returns trigger language plpgsql as"
        " $$ begin if new.id = 2 then return null; end if; return new; end $$"
    )
    await field.do("create trigger never before update on things for each row execute function never()")
    await field.put(3)
    field.fix(done, claim="row_lock", concurrency=1)
    counts = await field.sweep()
    assert (counts.changed, counts.undone) == (2, 1)
    assert [event.key for event in field.events.of(RowUndone)] == ["2"]
    assert await field.states() == {"done": 2, "new": 1}
    known = await field.known(2)
    assert known is not None
    assert (known["state"], known["attempt"]) == ("resting", 1)


async def test_a_next_row_that_is_given_up_while_it_is_being_locked_is_not_left_locked(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task is cancelled in between: before the answer has come, and after."""
    await field.put(6)
    field.fix(done, claim="row_lock", concurrency=1)
    hand = (await field.gather()).hand
    locking = hand._handling.locking
    assert locking is not None
    commit, cancelled = locking._commit, []

    async def cancelling(held: RowInHand, *others: Any) -> Any:
        *others, follow = others

        def watched() -> RowInHand | None:
            following = follow()
            if following is not None and following.row.key == "2":
                cancelled.append(following)
                following.cancel("lost")
            return following

        answer = await commit(held, *others, watched)
        for following in [each for each in hand.in_hand() if each.row.key == "5" and held.row.key == "4"]:
            cancelled.append(following)
            following.cancel("lost")
        return answer

    monkeypatch.setattr(locking, "_commit", cancelling)
    counts = await field.sweep()
    assert [each.row.key for each in cancelled] == ["2", "5"]
    assert (counts.changed, counts.unchanged) == (4, 2)
    assert await field.states() == {"done": 4, "new": 2}
    assert await locked_by_others(field) == 0
    assert (await field.sweep()).changed == 2


async def test_rows_cancelled_before_their_handlers_took_a_first_step_go_back(field: Field) -> None:
    await field.put(5)
    field.fix(done, concurrency=3)
    hand = (await field.gather()).hand
    put = hand.put

    def interrupted(*given: Any) -> None:
        put(*given)
        hand.interrupt()

    hand.put = interrupted  # type: ignore[method-assign]
    counts = await asyncio.wait_for(field.sweep(), 10)
    assert (counts.changed, counts.unchanged) == (0, 5)
    assert hand.idle
    assert [await field.known(n) for n in range(1, 6)] == [None] * 5


@pytest.mark.parametrize("prepare", ["auto", "true", "false"])
async def test_handlers_that_are_rolled_back_repeatedly_leave_the_connection_usable(
    database_url: str, prepare: str
) -> None:
    """psycopg prepares what is repeated, and has the server forget everything at a rollback."""
    field = Field(App(database_url, prepare=prepare))
    await field.prepare()
    failed: list[int] = []

    async def handler(row: Any, *, tx: Tx) -> Any:
        await tx.execute("insert into log values (%s, 'tried')", (row.id,))
        if row.id % 6 == 0:
            failed.append(row.id)
            raise ValueError("boom")
        return To("done")

    await field.put(60)
    field.fix(handler, claim="row_lock", concurrency=2)
    counts = await field.sweep()
    assert (counts.changed, counts.retry, counts.settled) == (50, 10, 60)
    assert sorted(failed) == list(range(6, 61, 6))
    assert {event.error for event in field.events.of(RowRetried)} == {"boom"}
    await field.close()
    await field.app.close()


async def test_a_handler_that_deallocates_statements_is_retried_without_an_attempt(field: Field) -> None:
    forgot: list[int] = []

    async def handler(row: Any, *, tx: Tx) -> Any:
        if row.id == 3 and not forgot:
            forgot.append(row.id)
            await tx.execute("deallocate all")
        return To("done")

    await field.put(5)
    field.fix(handler, claim="row_lock", concurrency=1, retry=Retry(first="1ms", jitter=False))
    counts = await field.sweep()
    assert (counts.changed, counts.retry, counts.lost) == (4, 1, 0)
    known = await field.known(3)
    assert known is not None
    assert (known["state"], known["attempt"], known["crashes"]) == ("resting", 0, 0)
