"""What an App does at its end."""

from __future__ import annotations

from typing import Any

import pytest

from trueup import App, Finding

pytestmark = pytest.mark.asyncio


async def test_what_handlers_keep_open_is_closed_before_the_database_and_the_last_first(app: App) -> None:
    order: list[str] = []

    async def close(name: str) -> None:
        async with app.transaction() as tx:
            await tx.execute("select 1")
        order.append(name)

    app.on_close(lambda: close("first"))
    app.on_close(lambda: close("second"))
    await app.close()
    assert order == ["second", "first"]


async def test_it_is_closed_each_time_and_whatever_became_of_the_others(app: App) -> None:
    closed = 0

    async def close() -> None:
        nonlocal closed
        closed += 1

    async def fail() -> None:
        raise ConnectionError("it was gone")

    app.on_close(close)
    app.on_close(fail)
    store = await app.open()
    with pytest.raises(ConnectionError, match="it was gone"):
        await app.close()
    assert closed == 1
    assert store.pool is not (await app.open()).pool, "the store was closed, too"
    app._close_hooks.remove(fail)
    await app.close()
    assert closed == 2


async def test_the_old_name_of_jobs_still_works_and_says_so(app: App) -> None:
    with pytest.warns(DeprecationWarning, match="app.jobs"):
        old = app.operations
    assert type(old) is type(app.jobs)


@pytest.mark.parametrize(
    "given",
    [
        None,
        ["down"],
        [("gateway", "error", "down", "up")],
        [Finding("gateway", "critical", "down", "restart it")],
        Finding("gateway", "error", "down", "restart it"),
    ],
    ids=["nothing", "texts", "tuples", "a severity that is none", "a single one"],
)
async def test_an_examination_that_returns_no_findings_is_itself_one(app: App, given: Any) -> None:
    """A text would end the doctor with a traceback, and `critical` would not make it exit with 1."""

    async def gateway() -> Any:
        return given

    app.on_examine(gateway)
    (found,) = [each for each in await app.examine() if each.check in ("gateway", "examine")]
    assert (found.check, found.severity) == ("examine", "error")
    assert "gateway failed: TypeError" in found.problem


async def test_on_examine_adds_findings_and_a_failing_examination_is_one(app: App) -> None:
    gone = Finding("gateway", "warning", "it does not answer", "see its status page")

    async def gateway() -> list[Finding]:
        return [gone]

    async def broken() -> list[Finding]:
        raise OSError("postgresql://app:geheim@db is away")

    app.on_examine(gateway)
    app.on_examine(broken)
    found = [each for each in await app.examine() if each.check in ("gateway", "examine")]
    assert found[0] == gone
    assert (found[1].severity, "broken failed: OSError" in found[1].problem) == ("error", True)
    assert "geheim" not in found[1].problem
