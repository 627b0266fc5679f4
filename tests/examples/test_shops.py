"""The examples as real processes: their own tests, then an order from the request, or the command, to the parcel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from tests.support.database import TestServer
from tests.support.ports import number, reserve
from tests.support.programs import WITHIN, answers, ask, environment, run, running
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
TRUEUP = ("-m", "trueup.cli")
SERVERS = {
    "fastapi_shop": ("-m", "uvicorn", "shop.api:api", "--port"),
    "flask_shop": ("-m", "flask", "--app", "shop.web:web", "run", "--port"),
}

# Plugins that are found, and that none of the examples has: importing them takes longer than the tests.
WITHOUT = tuple(f"-pno:{name}" for name in ("xdist", "xdist.looponfail", "schemathesis", "hypothesispytest", "valkey"))


@pytest.fixture
def variables(database_url: str) -> dict[str, str]:
    return environment(DATABASE_URL=database_url, PYTHONDONTWRITEBYTECODE="1")


@pytest.mark.slow
@pytest.mark.parametrize(("example", "count"), [("fastapi_shop", 4), ("flask_shop", 3), ("script", 3), ("dask", 5)])
def test_its_own_tests_pass(example: str, count: int, server: TestServer) -> None:
    installed = any(each.name == "trueup" for each in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", "trueup.testing.plugin")
    variables = environment(TRUEUP_TEST_DATABASE_URL=server.cluster.url(), PYTHONDONTWRITEBYTECODE="1")
    pytest_ = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *WITHOUT, *plugin)
    assert f"{count} passed" in run(EXAMPLES / example, variables, *pytest_)


@pytest.mark.slow
def test_an_order_placed_by_http_is_charged_by_a_worker_and_shipped_by_a_reconciler(
    variables: dict[str, str], tmp_path: Path
) -> None:
    with order_by_http("fastapi_shop", variables, tmp_path) as site:
        with urlopen(f"{site}/jobs/shop/reconcilers") as dashboard:
            assert "ship" in dashboard.read().decode()
        lines = list(map(json.loads, (tmp_path / "worker.log").read_text().splitlines()))
        assert [line["message"] for line in lines if line.get("logger") == "shop.jobs"] == ["order 1 is paid"]


@pytest.mark.slow
@pytest.mark.proof(
    beside="test_its_own_tests_pass"
)  # which order by HTTP, too, without a server and a worker around them
def test_an_order_placed_with_flask_is_charged_and_shipped(variables: dict[str, str], tmp_path: Path) -> None:
    with order_by_http("flask_shop", variables, tmp_path):
        pass


@contextmanager
def order_by_http(example: str, variables: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """An order from the request to the parcel. Yields the address of the server, which still runs."""
    shop = EXAMPLES / example
    run(shop, variables, "-m", "shop.database")
    with reserve() as port, ExitStack() as processes:
        orders = f"http://127.0.0.1:{number(port)}/orders"
        serve = (*SERVERS[example], str(number(port)))
        processes.enter_context(running(shop, variables, tmp_path / "server.log", *serve))
        processes.enter_context(running(shop, variables, tmp_path / "worker.log", *TRUEUP, "worker"))
        wait_until(lambda: answers(f"{orders}/1"), "the server answers", timeout=WITHIN, pause=0.1)
        order = ask(orders, {"email": "ada@example.com"})["order"]
        shipped = {"state": "shipped", "tracking_number": f"AT-{order:08}"}
        wait_until(lambda: ask(f"{orders}/{order}") == shipped, "the order is shipped", timeout=WITHIN, pause=0.1)
        yield orders.removesuffix("/orders")


@pytest.mark.proof(beside="test_its_own_tests_pass")
@pytest.mark.slow
def test_an_order_placed_by_a_script_is_charged_and_shipped(variables: dict[str, str], tmp_path: Path) -> None:
    script = EXAMPLES / "script"
    run(script, variables, "orders.py", "setup")
    with running(script, variables, tmp_path / "worker.log", *TRUEUP, "worker"):
        order = int(run(script, variables, "orders.py", "place", "ada@example.com"))
        with psycopg.connect(variables["DATABASE_URL"], autocommit=True) as database:
            state = "select state from orders where id = %s"
            shipped = [("shipped",)]
            wait_until(
                lambda: database.execute(state, [order]).fetchall() == shipped, "the order is shipped", timeout=WITHIN
            )
        assert run(script, variables, "orders.py", "show", str(order)) == f"shipped AT-{order:08}\n"


@pytest.mark.slow
@pytest.mark.proof(beside="tests/integrations/test_dask.py::test_calls_run_in_the_cluster_each_of_them_once")
def test_primes_are_counted_by_the_processes_of_a_dask_cluster(variables: dict[str, str], tmp_path: Path) -> None:
    example = EXAMPLES / "dask"
    variables |= {"DASK_TEMPORARY_DIRECTORY": str(tmp_path), "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]"}
    with reserve() as port, ExitStack() as processes:
        address = f"tcp://127.0.0.1:{number(port)}"
        scheduler = ("-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(number(port)))
        dask_worker = ("-m", "dask", "worker", address, "--nworkers", "2", "--nthreads", "1", "--host", "127.0.0.1")
        quiet = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")
        processes.enter_context(running(example, variables, tmp_path / "scheduler.log", *scheduler, *quiet))
        processes.enter_context(running(example, variables, tmp_path / "dask.log", *dask_worker, *quiet))
        variables |= {"DASK_SCHEDULER": address}
        processes.enter_context(running(example, variables, tmp_path / "worker.log", *TRUEUP, "worker"))
        assert run(example, variables, "primes.py", "250000") == "22044\n"
