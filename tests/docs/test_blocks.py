"""Blocks of pages that need more than a database: a Redis server, Django, Alembic, pytest. They are run as they are written."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from apps.servers.valkey import Valkey
from tests.docs.pages import DOCS, Block, blocks
from tests.docs.test_examples import run
from tests.support.database import TestServer
from trueup import App


def marked(page: str) -> list[Block]:
    found = [block for block in blocks(DOCS / page) if block.mark == "run by: tests/docs/test_blocks.py"]
    assert found, f"{page} has no such block any more"
    return found


@pytest.mark.slow
def test_a_lease_in_redis(database_url: str) -> None:
    (block,) = marked("howto/leases.md")
    with Valkey() as redis, asyncio.Runner() as runner:

        def made(redis_url: str) -> App:
            assert redis_url.startswith("redis://")
            return App(database_url, redis_url=redis.url)

        namespace: dict[str, Any] = {"App": made}
        run(block, namespace, runner)
        assert namespace["lease"].term > 0
        runner.run(namespace["app"].close())


def test_a_job_in_the_transaction_of_django(database_url: str) -> None:
    from django.db import connection

    from tests.django.shop.models import Order
    from tests.support.django_project import leads_to

    (block,) = marked("howto/transactional-enqueue.md")
    app = App(database_url)

    @app.job
    def send_receipt(order_id: int) -> None: ...

    with leads_to(database_url), asyncio.Runner() as runner:
        with connection.schema_editor() as editor:
            editor.create_model(Order)
        run(block, {"Order": Order, "send_receipt": send_receipt}, runner)
        connection.close()
    with psycopg.connect(database_url) as look:
        assert look.execute("select args from trueup.jobs").fetchall() == [({"order_id": 1},)]
    app.close_sync()


@pytest.mark.parametrize(
    "page", ["explanation/history.md", "howto/moving.md", "howto/operating.md", "howto/reconcilers.md"]
)
def test_the_sql_of_a_page_runs_on_the_schema(page: str, database_url: str) -> None:
    statements = [block.code for block in blocks(DOCS / page) if block.language == "sql"]
    assert statements
    with psycopg.connect(database_url) as connection:  # roles belong to the whole server: nothing of this is committed
        connection.execute("create role workers; create table wallpapers (id text)")
        for statement in statements:
            connection.execute(statement.encode())
        connection.rollback()


ENVIRONMENT = """
import os
import sqlalchemy as sa
from alembic import context

metadata, engine = sa.MetaData(), sa.create_engine(os.environ["URL"])
with engine.connect() as connection:
{configured}
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
"""


def test_a_revision_of_alembic_and_autogenerate(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import command
    from alembic.config import Config

    configured, revision = (block.code for block in marked("howto/fastapi.md"))
    indented = "".join(f"    {line}" for line in configured.splitlines(keepends=True))
    (tmp_path / "env.py").write_text(ENVIRONMENT.format(configured=indented))
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions/0001.py").write_text(f'revision, down_revision = "0001", None\n{revision}')
    monkeypatch.setenv("URL", make_url(empty_database_url).set(drivername="postgresql+psycopg").render_as_string(False))
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")

    command.upgrade(config, "head")
    with psycopg.connect(empty_database_url) as look:
        assert look.execute("select count(*) from trueup.jobs").fetchone() == (0,)
    command.check(config)  # raises when autogenerate would drop trueup's tables


SHOP = {
    "shop/app.py": """
from trueup import App

app = App("postgresql://nobody@127.0.0.1:1/production", include=["shop.jobs"])
""",
    "shop/outside.py": """
class Outside:
    def __init__(self):
        self.known = {}

    def charges(self):
        return len(self.known)

    messages = charges

provider, outbox = Outside(), Outside()
""",
    "shop/jobs.py": """
from shop.app import app
from shop.outside import outbox, provider
from trueup import Context, Row, To

@app.job
async def send(ctx: Context, to: str) -> None:
    outbox.known[ctx.idempotency_key] = to

@app.job
def charge(ctx: Context, order: int) -> None:
    provider.known[ctx.idempotency_key] = order

@app.table("orders", key="id", state="state").reconcile("placed", name="ship")
async def ship(order: Row) -> To:
    return To("shipped")

@app.cron("0 3 * * *")
async def nightly() -> None: ...
""",
    "shop/orders.py": """
import psycopg
from shop.app import app
from shop.jobs import send

def place_order(email):
    with psycopg.connect(app.settings.database_url.reveal()) as connection:
        connection.execute("insert into orders values (1, 'placed')")
        send.using(tx=connection).enqueue_sync(email)
""",
}


@pytest.mark.slow
def test_the_tests_on_the_page_about_testing(tmp_path: Path, server: TestServer) -> None:
    """howto/testing.md has a file of settings, one of fixtures and two of tests for a project that is here."""
    files = {str(block.file): block.code for block in blocks(DOCS / "howto/testing.md") if block.file is not None}
    assert sorted(files) == ["conftest.py", "pytest.ini", "test_orders.py", "test_repeated.py"]
    (tmp_path / "shop").mkdir()
    for name, code in {**SHOP, **files}.items():
        (tmp_path / name).write_text(code)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRUEUP_", "PYTEST_"))}
    installed = any(each.name == "trueup" for each in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", "trueup.testing.plugin")
    without = ("xdist", "xdist.looponfail", "schemathesis", "hypothesispytest", "valkey")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *(f"-pno:{name}" for name in without)],
        cwd=tmp_path,
        env={**kept, "TRUEUP_TEST_DATABASE_URL": server.cluster.url(), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
