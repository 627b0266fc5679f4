"""The Django shop as real processes: its own tests, then an order from HTTP to the parcel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.ports import number, reserve
from tests.support.waiting import wait_until

SHOP = Path(__file__).parents[2] / "examples/django_shop"
WITHIN = 60  # seconds for a command, on a busy machine


@pytest.fixture
def environment(empty_database_url: str) -> dict[str, str]:
    given = conninfo_to_dict(empty_database_url)
    names = {"PGDATABASE": "dbname", "PGUSER": "user", "PGHOST": "host", "PGPORT": "port"}
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("TRUEUP_", "PG", "DJANGO_"))}
    ours.pop("DATABASE_URL", None)
    return {**ours, **{name: str(given[key]) for name, key in names.items() if key in given}}


def manage(environment: dict[str, str], *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=SHOP,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@contextmanager
def running(environment: dict[str, str], log: Path, *arguments: str) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, SHOP / "manage.py", *arguments],
            cwd=log.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(url: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    body = None if given is None else json.dumps(given).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def answers(url: str) -> bool:
    try:
        ask(url)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_the_shops_own_tests_pass_and_no_migration_is_missing(environment: dict[str, str]) -> None:
    said = manage(environment, "test", "--noinput")
    assert "Ran 5 tests" in said
    assert "OK" in said
    assert "no changes" in manage(environment, "makemigrations", "--check", "--dry-run").lower()


@pytest.mark.slow
def test_an_order_placed_by_http_is_charged_by_a_worker_and_shipped_by_a_reconciler(
    environment: dict[str, str], tmp_path: Path
) -> None:
    manage(environment, "migrate", "--verbosity", "0")
    with reserve() as port, ExitStack() as processes:
        site = f"http://127.0.0.1:{number(port)}"
        serve = ("runserver", "--noreload", f"127.0.0.1:{number(port)}")
        processes.enter_context(running(environment, tmp_path / "server.log", *serve))
        processes.enter_context(
            running(
                environment,
                tmp_path / "worker.log",
                "trueup",
                "worker",
                "--settings",
                "shop.settings",
                "--processes",
                "1",
            )
        )
        wait_until(lambda: answers(f"{site}/orders/1/"), "the server answers", timeout=WITHIN, pause=0.1)
        order = ask(f"{site}/orders/", {"email": "ada@example.com", "total": "12.50"})["order"]
        wait_until(
            lambda: ask(f"{site}/orders/{order}/")["state"] == "shipped",
            "the order is shipped",
            timeout=WITHIN,
            pause=0.1,
        )
        assert ask(f"{site}/orders/{order}/")["tracking_number"] == f"AT-{order:08}"
        wait_until(
            lambda: "ada@example.com" in (tmp_path / "worker.log").read_text(),
            "the receipt is sent",
            timeout=WITHIN,
            pause=0.1,
        )
    status = json.loads(manage(environment, "trueup", "status", "--json"))
    assert status["workers"] == []
