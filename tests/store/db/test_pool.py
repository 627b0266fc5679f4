"""Statements that callers and handlers send through the shared connections."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from trueup import App, Context, Retry
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

# A sequence counts on although the transaction is rolled back.
ASKING = """
create sequence tries;
create function ask() returns trigger language plpgsql as $$
begin
  if new.progress is distinct from old.progress and nextval('tries') <= {times} then
    raise exception 'again' using errcode = '{state}';
  end if;
  return new;
end $$;
create trigger ask before update on trueup.jobs for each row execute function ask();
"""


def make_the_server_ask(url: str, state: str, times: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ASKING.format(state=state, times=times).encode())


@pytest.mark.parametrize("state", ["40001", "40P01"])
@pytest.mark.parametrize("how", ["async", "sync"])
async def test_a_statement_that_the_server_asks_to_repeat_is_repeated(
    still: App, worker: ManualWorker, database_url: str, state: str, how: str
) -> None:
    """Where serializable is the default, two that touch each other's rows suffice: the handler must not see it."""

    @still.job(retry=Retry(max_attempts=1))
    async def tell(*, ctx: Context) -> str:
        if how == "async":
            await ctx.progress(50)
        else:
            await asyncio.to_thread(ctx.progress_sync, 50)
        return "told"

    job = await tell.enqueue()
    make_the_server_ask(database_url, state, times=3)
    await worker.run_pending()
    assert await job.result(timeout="1s") == "told"


async def test_one_that_it_asks_for_again_and_again_ends_with_the_error(
    still: App, worker: ManualWorker, database_url: str
) -> None:
    seen: list[BaseException] = []

    @still.job(retry=Retry(max_attempts=1))
    async def tell(*, ctx: Context) -> None:
        try:
            await ctx.progress(50)
        except psycopg.errors.SerializationFailure as error:
            seen.append(error)

    await tell.enqueue()
    make_the_server_ask(database_url, "40001", times=1_000)
    await worker.run_pending()
    assert len(seen) == 1
