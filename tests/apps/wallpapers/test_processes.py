"""Real processes on real servers: any number of them at once, killed, stopped, and with a part of the world down."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import httpx
import psycopg
import pytest

from apps.servers.nats import NatsServer
from apps.servers.seaweed import Seaweed
from apps.wallpapers import rows
from apps.wallpapers.ids import new_id
from tests.apps.processes import Process, Town, ask, town
from tests.apps.wallpapers.pictures import picture
from tests.apps.wallpapers.world import SOON, World
from tests.support import ports, warm
from tests.support.matrix import count
from tests.support.processes import ROOT
from tests.support.waiting import wait_until
from trueup import App

pytestmark = pytest.mark.slow


@pytest.fixture
def world(database_url: str, seaweed: Seaweed, nats: NatsServer) -> Iterator[World]:
    asyncio.run(_tables(database_url))
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield World(database_url, seaweed, nats, connection)


async def _tables(url: str) -> None:
    async with App(url) as app, app.transaction() as tx:
        await rows.make_tables(tx)


@pytest.fixture
def place(world: World, tmp_path: Path) -> Iterator[Town]:
    with town("apps.wallpapers", world.environment, tmp_path) as place:
        yield place


def workers(place: Town, number: int, **variables: str) -> list[Process]:
    return [place.start("worker", **variables) for _ in range(number)]


@pytest.mark.proof(beside="test_five_instances_with_all_sweeps_at_once_do_everything_once")
def test_twenty_stuck_uploads_and_three_instances_make_twenty_stored(place: Town, world: World) -> None:
    world.uploading(20)
    fleet = workers(place, 3)
    world.until(*fleet, stored=20)
    hashes = world.database.execute("select count(distinct content_hash)::int from wallpapers").fetchone()
    assert hashes == (20,)
    assert world.messages() == [], "they are announced in a later cycle"
    assert world.bad_lines(*fleet) == []


@pytest.mark.proof(beside="test_five_instances_with_all_sweeps_at_once_do_everything_once")
def test_thirty_stored_and_three_instances_make_thirty_messages(place: Town, world: World) -> None:
    ids = world.rows("stored", 30)
    fleet = workers(place, 3)
    world.until(*fleet, processing=30)
    world.until_published(ids)
    assert world.bad_lines(*fleet) == []


@pytest.mark.proof(beside="test_five_instances_with_all_sweeps_at_once_do_everything_once")
def test_fifteen_intents_and_two_instances_leave_none(place: Town, world: World) -> None:
    world.rows("initiated", 15)
    world.until(*workers(place, 2))


def test_five_instances_with_all_sweeps_at_once_do_everything_once(place: Town, world: World) -> None:
    stuck, intents = count(15, proof=50), count(10, proof=30)
    world.uploading(stuck)
    stored = world.rows("stored", intents, user_id="grace")
    world.rows("initiated", intents)
    fleet = workers(place, 5, RECONCILIATION_INTERVAL_MS="300")
    world.until(*fleet, stored=stuck, processing=intents)
    world.until_published(stored)
    assert world.states() == {"stored": stuck, "processing": intents}, "and none besides"
    hashes = world.database.execute("select count(distinct content_hash)::int from wallpapers").fetchone()
    assert hashes == (stuck + intents,)
    assert world.bad_lines(*fleet) == []
    assert [worker.stop() for worker in fleet] == [0] * 5


def rests(fleet: list[Process]) -> int:
    """How often the sweep has given up for a while; the rests are a second, two, four."""
    return sum(len(worker.lines("reconciler paused")) for worker in fleet)


@pytest.mark.proof(
    beside="tests/apps/wallpapers/test_sweeps.py::test_storage_that_is_down_for_cycles_moves_no_row_and_counts_no_attempt"
)
def test_storage_stopped_for_whole_cycles_moves_no_row_to_failed(place: Town, world: World) -> None:
    ids = world.uploading(12, upload_attempts=3)
    every = {"RECONCILIATION_INTERVAL_MS": "200", "WALLPAPERS_PAUSE_FOR": "1s", "S3_TIMEOUT": "1s"}
    keys = world.objects()
    with world.seaweed.stopped():
        fleet = workers(place, 2, **every)
        wait_until(lambda: rests(fleet) >= 2, "whole cycles have gone by", timeout=SOON)
        assert world.states() == {"uploading": 12}
        attempts = world.database.execute("select distinct upload_attempts from wallpapers").fetchall()
        assert attempts == [(3,)]
    world.until(*fleet, stored=12)
    assert world.objects() == keys
    assert {key.partition("/")[0] for key in keys} == set(ids)


def test_nats_and_the_worker_killed_between_publishing_and_commit_leave_one_message(place: Town, world: World) -> None:
    (wallpaper_id,) = world.rows("stored", 1)
    first = place.start("worker", TRUEUP_FAULT="after_handler:kill")
    assert first.ended() == -signal.SIGKILL, first.said
    assert world.messages() == [f"{wallpaper_id}.uploaded"], "the message is there, and nobody has written that down"
    assert world.jobs() == 1
    world.nats.kill()
    world.nats.start()
    second = place.start("worker", TRUEUP_LOG_LEVEL="info")
    wait_until(lambda: second.lines("NATS had this message already"), "it is published once more", timeout=SOON)
    wait_until(lambda: world.jobs() == 0, "and written down", timeout=SOON)
    assert world.messages() == [f"{wallpaper_id}.uploaded"]


@pytest.mark.parametrize("point", ["after_handler", "in_exhausted"])
def test_a_worker_that_dies_in_the_last_attempt_to_publish_loses_no_event(
    place: Town, world: World, point: str
) -> None:
    dies_in_the_last_attempt(place, world, point)


@pytest.mark.proof(beside="test_a_worker_that_dies_in_the_last_attempt_to_publish_loses_no_event")
def test_a_worker_that_dies_before_the_last_attempt_to_publish_loses_no_event(place: Town, world: World) -> None:
    dies_in_the_last_attempt(place, world, "before_handler")


def dies_in_the_last_attempt(place: Town, world: World, point: str) -> None:
    """Its job is a dead letter then: the row goes back to `stored` with it, and the sweep publishes anew."""
    (wallpaper_id,) = world.rows("stored", 1)
    first = place.start("worker", TRUEUP_FAULT="before_handler:kill")
    assert first.ended() == -signal.SIGKILL, first.said
    world.database.execute("update trueup.jobs set attempt = max_attempts - 1, state = 'queued', holder = null")
    with world.nats.stopped() if point == "in_exhausted" else nullcontext():
        second = place.start("worker", TRUEUP_FAULT=f"{point}:kill")
        assert second.ended() == -signal.SIGKILL, second.said
    third = place.start("worker", RECONCILIATION_INTERVAL_MS="300", WALLPAPERS_MISSING_AFTER="1s")
    wait_until(lambda: third.lines("Event not published"), "its row is put back", timeout=SOON)
    world.until(third, processing=1)
    world.until_published([wallpaper_id])


@pytest.mark.parametrize("point", ["after_row_handler", "after_row_settle"])
def test_a_process_killed_in_the_middle_of_a_sweep_loses_and_doubles_nothing(
    place: Town, world: World, point: str
) -> None:
    stored = world.rows("stored", 10)
    first = place.start("worker", TRUEUP_FAULT=f"{point}:kill", WALLPAPERS_LEASE_FOR="1s")
    assert first.ended() == -signal.SIGKILL, first.said
    second = place.start("worker", RECONCILIATION_INTERVAL_MS="300", WALLPAPERS_LEASE_FOR="1s")
    world.until(second, processing=10)
    world.until_published(stored)


@pytest.mark.proof(
    beside="tests/apps/wallpapers/test_api.py::test_wherever_an_upload_breaks_off_the_sweeps_see_it_through"
)
def test_a_row_of_an_api_killed_while_it_writes_the_object_is_swept_to_its_end(place: Town, world: World) -> None:
    api, base = place.serve("serve", "--no-reconciliation")
    made = ask(f"{base}/wallpapers", "POST", {"user_id": "ada"})
    content = f"{base}/wallpapers/{made['id']}/content"
    with world.seaweed.hanging(), ThreadPoolExecutor() as threads:
        upload = threads.submit(lambda: httpx.put(content, content=picture(1), timeout=SOON))
        wait_until(lambda: world.states() == {"uploading": 1}, "it is at it", timeout=SOON)
        api.kill()
        assert isinstance(upload.exception(SOON), httpx.TransportError), "the client learns that it broke off"
    worker = place.start("worker", RECONCILIATION_INTERVAL_MS="300", WALLPAPERS_STUCK_AFTER="1s")
    wait_until(lambda: world.states()["uploading"] == 0, "it is decided", timeout=SOON)
    # Whether the storage had taken it when we were killed, nobody knows; but row and object must agree.
    assert worker.alive, worker.said
    assert world.states() == ({"stored": 1} if world.objects() else {"failed": 1})


def test_the_api_serves_with_the_sweeps_inside_and_stops_in_order(place: Town, world: World) -> None:
    world.rows("initiated", 1)
    process, base = place.serve("serve", TRUEUP_LOG_LEVEL="info")
    wait_until(lambda: ask(f"{base}/health") == {"reconciling": True, "down": {}}, "the sweeps run", timeout=SOON)
    world.until(process)
    made = ask(f"{base}/wallpapers", "POST", {"user_id": "ada"})
    assert ask(f"{base}/wallpapers/{made['id']}")["upload_state"] == "initiated"
    assert f"wallpapers: listening on {base}" in process.said
    assert (ask(f"{base}/healthz"), ask(f"{base}/readyz")) == ({"alive": True}, {"ready": True, "down": []})
    assert process.stop() == 0
    assert "Traceback" not in process.said
    assert world.database.execute("select from trueup.workers").rowcount == 0, "the worker has left in order"


def test_a_cycle_by_hand_needs_no_worker(place: Town, world: World) -> None:
    world.uploading(2)
    stored = world.rows("stored", 1, user_id="grace")
    world.rows("initiated", 3)
    process = place.start("reconcile")
    assert process.ended() == 0, process.said
    assert world.states() == {"stored": 2, "processing": 1}
    assert (world.messages(), world.jobs()) == ([f"{stored[0]}.uploaded"], 0), "no worker is needed for the event"


def test_a_dry_run_lists_orphans_and_deletes_none(place: Town, world: World) -> None:
    world.put({f"{new_id()}/original.jpg": b"x" for _ in range(3)})
    variables = {**place.environment, "WALLPAPERS_ORPHAN_GRACE": "1s"}

    def orphans(*options: str) -> warm.Ended:
        return warm.run("apps.wallpapers", "orphans", *options, cwd=ROOT, env=variables)

    def listed() -> bool:
        dry = orphans("--dry-run")
        assert dry.returncode == 0, dry.stderr
        return dry.stdout.count("wlpr_") == 3 and "none would be deleted: 3 of 3 objects" in dry.stderr

    wait_until(listed, "they are old enough", timeout=SOON, pause=0.5)
    refused = orphans()
    said = refused.stderr.splitlines()[-1]
    assert (refused.returncode, said.startswith("orphaned-objects: failed: 3 of 3 objects")) == (1, True), said
    assert len(world.objects()) == 3
    assert orphans("--max-fraction", "1").returncode == 0
    assert world.objects() == []


def test_the_metrics_of_a_worker_have_those_that_are_stuck_in_processing(place: Town, world: World) -> None:
    world.rows("processing", 2)
    with ports.reserve() as reserved:
        port = ports.number(reserved)
        place.start("worker", TRUEUP_METRICS_PORT=str(port))

        def served() -> str:
            try:
                return str(ask(f"http://127.0.0.1:{port}/metrics"))
            except OSError:
                return ""

        wait_until(lambda: "wallpapers_stuck_in_processing 2.0" in served(), "they are counted", timeout=SOON)


def test_a_worker_starts_while_the_storage_and_nats_are_down_and_tells_no_secrets(place: Town, world: World) -> None:
    with ports.reserve() as nobody:
        nowhere = f"127.0.0.1:{ports.number(nobody)}"
        world.rows("initiated", 1)
        worker = place.start(
            "worker",
            S3_ENDPOINT_URL=f"http://{nowhere}",
            S3_SECRET_ACCESS_KEY="hunter2",
            NATS_URL=f"nats://me:hunter2@{nowhere}",
            TRUEUP_LOG_LEVEL="debug",
        )
        world.until(worker)
        assert worker.lines("NATS cannot be reached yet")
        assert worker.stop() == 0
        assert "hunter2" not in worker.said


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_database_that_was_not_prepared_is_told_of_with_2(
    empty_database_url: str, seaweed: Seaweed, nats: NatsServer, tmp_path: Path, command: str
) -> None:
    environment = {"TRUEUP_DATABASE_URL": empty_database_url, "NATS_URL": nats.url, **seaweed.environment()}
    with town("apps.wallpapers", environment, tmp_path) as place:
        process = place.start(command)
        assert process.ended() == 2
        assert "trueup migrate" in process.said
        assert "Traceback" not in process.said
