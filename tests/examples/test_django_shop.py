"""The Django shop as real processes: its own tests, then an order from HTTP to the parcel."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.ports import number, reserve
from tests.support.programs import WITHIN, answers, ask, environment, run, running
from tests.support.waiting import wait_until

SHOP = Path(__file__).parents[2] / "examples/django_shop"
MANAGE = SHOP / "manage.py"


@pytest.fixture
def variables(empty_database_url: str) -> dict[str, str]:
    given = conninfo_to_dict(empty_database_url)
    names = {"PGDATABASE": "dbname", "PGUSER": "user", "PGHOST": "host", "PGPORT": "port"}
    return environment(**{name: str(given[key]) for name, key in names.items() if key in given})


@pytest.mark.slow
def test_the_shops_own_tests_pass_and_no_migration_is_missing(variables: dict[str, str]) -> None:
    said = run(SHOP, variables, MANAGE, "test", "--noinput", "--parallel", "2")
    assert "Cloning test database" in said
    assert "Ran 5 tests" in said
    assert "OK" in said
    assert "no changes" in run(SHOP, variables, MANAGE, "makemigrations", "--check", "--dry-run").lower()


@pytest.mark.proof(beside="test_the_shops_own_tests_pass_and_no_migration_is_missing")
@pytest.mark.slow
def test_an_order_placed_by_http_is_charged_by_a_worker_and_shipped_by_a_reconciler(
    variables: dict[str, str], tmp_path: Path
) -> None:
    run(SHOP, variables, MANAGE, "migrate", "--verbosity", "0")
    worker_log = tmp_path / "worker.log"
    with reserve() as port, ExitStack() as processes:
        site = f"http://127.0.0.1:{number(port)}"
        serve = ("runserver", "--noreload", f"127.0.0.1:{number(port)}")
        work = ("trueup", "worker", "--settings", "shop.settings", "--processes", "1")
        processes.enter_context(running(tmp_path, variables, tmp_path / "server.log", MANAGE, *serve))
        processes.enter_context(running(tmp_path, variables, worker_log, MANAGE, *work))
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
            lambda: "ada@example.com" in worker_log.read_text(), "the receipt is sent", timeout=WITHIN, pause=0.1
        )
    status = json.loads(run(SHOP, variables, MANAGE, "trueup", "status", "--json"))
    assert status["workers"] == []
