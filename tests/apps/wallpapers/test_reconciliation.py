"""The sweeps of one process: started twice, stopped, by hand, and with one that fails."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest

from apps.wallpapers.api import make_api
from apps.wallpapers.sweeps import MISSING_EVENTS, ORPHANED_INTENTS, STUCK_UPLOADS
from tests.apps.wallpapers.studio import COMPLETE, Studio
from tests.support import ports
from trueup.web.guard import Rules
from trueup.web.serving import Server

pytestmark = pytest.mark.asyncio


async def test_started_twice_it_runs_once(studio: Studio, caplog: pytest.LogCaptureFixture) -> None:
    reconciliation = studio.service.reconciliation
    with caplog.at_level(logging.INFO, "wallpapers"):
        await reconciliation.start()
        await reconciliation.start()
        assert reconciliation.running
        await reconciliation.stop()
        await reconciliation.stop()
    assert not reconciliation.running
    said = [record.message for record in caplog.records if record.name == "wallpapers"]
    assert said == ["Reconciliation started", "Reconciliation is already running", "Reconciliation stopped"]


async def test_it_can_be_started_again_after_a_stop(studio: Studio) -> None:
    for _ in range(2):
        await studio.service.reconciliation.start()
        await studio.service.reconciliation.stop()


async def test_a_cycle_by_hand_works_while_it_is_stopped(studio: Studio) -> None:
    await studio.row("initiated")
    outcomes = await studio.service.reconciliation.run_reconciliation_now()
    assert list(outcomes) == [STUCK_UPLOADS, MISSING_EVENTS, ORPHANED_INTENTS]
    assert await studio.states() == {}


async def test_a_sweep_that_fails_is_told_of_and_stops_no_other(
    studio: Studio, caplog: pytest.LogCaptureFixture
) -> None:
    await studio.app.reconcilers.pause(STUCK_UPLOADS, "somebody looks into it")  # so that a run of it raises
    await studio.row("stored", **COMPLETE)
    await studio.row("initiated")
    outcomes = await studio.service.reconciliation.run_reconciliation_now()
    assert outcomes[STUCK_UPLOADS] is None
    assert await studio.states() == {"processing": 1}
    assert "Sweep failed" in [record.message for record in caplog.records]


async def test_an_empty_table_is_swept_without_a_word_of_error(studio: Studio) -> None:
    outcomes = await studio.service.reconciliation.run_reconciliation_now()
    assert None not in outcomes.values()


async def test_the_sweeps_start_once_the_api_listens_and_stop_before_it_does(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciliation = studio.service.reconciliation
    start, stop = reconciliation.start, reconciliation.stop
    with ports.reserve() as reserved:
        port = ports.number(reserved)
        seen: list[tuple[str, dict[str, bool]]] = []

        async def asked(what: str) -> None:
            async with httpx.AsyncClient() as client:
                seen.append((what, (await client.get(f"http://127.0.0.1:{port}/health")).json()))

        async def started() -> None:
            await asked("start")
            await start()

        async def stopped() -> None:
            if reconciliation.running:
                await asked("stop")
                await stop()
                await asked("stopped")

        monkeypatch.setattr(reconciliation, "start", started)
        monkeypatch.setattr(reconciliation, "stop", stopped)
        service = studio.service
        server = Server(
            "wallpapers",
            make_api(service),
            service.down,
            Rules(),
            "127.0.0.1",
            port,
            while_listening=reconciliation.started(),
        )
        serving = asyncio.create_task(server.serve())
        async with asyncio.timeout(30):
            while not reconciliation.running:
                await asyncio.sleep(0.01)
        server.should_exit = True
        await asyncio.wait_for(serving, 30)
    assert seen == [
        ("start", {"reconciling": False, "down": {}}),
        ("stop", {"reconciling": True, "down": {}}),
        ("stopped", {"reconciling": False, "down": {}}),
    ]
