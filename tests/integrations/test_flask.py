"""The sync twins in a Flask application, with and without a session of SQLAlchemy."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask import Flask, abort
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from trueup import App
from trueup.testing.clock import ManualClock
from trueup.testing.harness import Harness, SyncHarness


@pytest.mark.parametrize("in_session", [False, True], ids=["alone", "in a session"])
def test_a_request_enqueues_and_a_refused_one_does_not(database_url: str, in_session: bool) -> None:
    engine = sa.create_engine(make_url(database_url).set(drivername="postgresql+psycopg"))
    clock = ManualClock()
    app, web, shipped = App(database_url, clock=clock), Flask(__name__), list[str]()

    @app.job
    def ship(item: str) -> None:
        shipped.append(item)

    @web.post("/orders/<item>")
    def order(item: str) -> dict[str, int]:
        if not in_session:
            return {"job": ship.enqueue_sync(item).id}
        with Session(engine) as session, session.begin():
            job = ship.using(tx=session).enqueue_sync(item)
            if item == "nothing":
                abort(409)
            return {"job": job.id}

    with web.test_client() as client:
        assert client.post("/orders/tea").status_code == 200
        if in_session:
            assert client.post("/orders/nothing").status_code == 409
    jobs = SyncHarness(Harness(app, clock))
    jobs.assert_enqueued(ship, times=1, item="tea")
    assert jobs.drain() == 1
    assert shipped == ["tea"]
    jobs.close()
    app.close_sync()
    engine.dispose()
