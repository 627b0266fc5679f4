"""The tutorial, followed as it is written."""

from __future__ import annotations

import signal

import psycopg
import pytest

from tests.docs.conftest import Terminal
from tests.docs.pages import DOCS, blocks
from tests.support.waiting import wait_until

TUTORIAL = DOCS / "tutorial/first-job.md"

pytestmark = pytest.mark.slow


@pytest.fixture
def first(terminal: Terminal) -> Terminal:
    """The reader's directory with the files of the tutorial in it."""
    files = {block.file: block.code for block in blocks(TUTORIAL) if block.file is not None}
    assert files.keys() == {"trueup.toml", "jobs.py"}
    for name, text in files.items():
        (terminal.directory / name).write_text(text)
    return terminal


def test_the_job_of_the_tutorial_survives_the_kill_of_its_worker(first: Terminal) -> None:
    worker = first.start("worker")
    wait_until(lambda: str(worker.pid) in first.run("status"), "the worker is listed", timeout=30, pause=0.2)
    assert first.run("jobs", "enqueue", "count", "--arg", "upto=10") == "enqueued job 1\n"
    wait_until(lambda: "attempt 1: 1 of 10" in first.output, "it counts", timeout=30)
    worker.kill()
    worker.wait()
    assert first.job(1)["state"] == "running"

    first.start("worker")
    wait_until(lambda: "attempt 2: 10 of 10" in first.output, "another has counted to the end", timeout=60)
    wait_until(lambda: first.job(1)["state"] == "done", "it is done", timeout=30, pause=0.2)
    job = first.job(1)
    assert (job["result"], job["attempt"], job["max_attempts"]) == ("counted to 10", 2, 20)
    (error,) = job["errors"]
    assert error["type"] == "WorkerLost"
    assert error["message"].startswith("the lease of its worker expired")
    assert str(worker.pid) in error["message"]
    assert "job rescued" in first.output


def test_arguments_that_do_not_fit_are_refused_before_anything_is_stored(first: Terminal) -> None:
    first.run("jobs", "enqueue", "count", "--arg", "upto=many", status=2)
    assert first.run("jobs", "list", "--json").strip() == "[]"


def test_a_second_request_to_stop_hands_the_job_back_with_its_attempt(first: Terminal) -> None:
    worker = first.start("worker")
    first.run("jobs", "enqueue", "count", "--arg", "upto=60")
    wait_until(lambda: "attempt 1: 1 of 60" in first.output, "it counts", timeout=30)
    worker.send_signal(signal.SIGINT)
    wait_until(lambda: "worker stopping" in first.output, "the worker is stopping")
    worker.send_signal(signal.SIGINT)
    assert worker.wait(20) == 0
    job = first.job(1)
    assert (job["state"], job["attempt"], job["errors"]) == ("queued", 0, [])


RECONCILER = DOCS / "tutorial/first-reconciler.md"


@pytest.fixture
def shop(terminal: Terminal, database_url: str) -> Terminal:
    """The reader's directory and table, as the tutorial makes them."""
    for block in blocks(RECONCILER):
        if block.file is not None:
            (terminal.directory / block.file).write_text(block.code)
        elif block.language == "sql":
            with psycopg.connect(database_url) as connection:
                connection.execute(block.code.encode())
    return terminal


def test_the_reconciler_of_the_tutorial_ships_what_it_can_and_quarantines_the_rest(
    shop: Terminal, database_url: str
) -> None:
    def count(query: str) -> int:
        with psycopg.connect(database_url) as connection:
            row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def shipped() -> int:
        return count("select count(*) from orders where status = 'shipped'")

    shop.run("reconcilers", "run", "ship_stuck_orders", "--dry-run")
    assert shipped() == 0
    shop.start("worker")
    aside = "select count(*) from trueup.rows where state = 'quarantined'"
    wait_until(lambda: count(aside) == 1, "the row without an address is set aside", timeout=60, pause=0.2)
    assert shipped() == 19
    assert "the order has no address" in shop.run("reconcilers", "quarantine", "list", "--json")

    with psycopg.connect(database_url) as connection:
        connection.execute("update orders set address = 'Street 13' where id = 13")
    shop.run("reconcilers", "quarantine", "release", "ship_stuck_orders", "13")
    wait_until(lambda: shipped() == 20, "the released row is shipped", timeout=60, pause=0.2)
