"""Alerts: sent once when a check keeps failing and once when it passes again, whichever worker watches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from tests.integrations.sink import Exchange, Sink, says
from tests.operate.test_checks import DEAD
from tests.support.watching import Watched, until
from trueup import App
from trueup.events import AlertRaised, AlertResolved, ServiceFailed
from trueup.operate.alerts import SENDING, AlertSender, AlertStep, message, next_step
from trueup.operate.checks import Finding, Report, check
from trueup.operate.watch import Watch, watching
from trueup.store.health import Alert, State

AFTER = timedelta(minutes=2)
FAILS = "insert into trueup.scans (name, due_at, failures, error) values ('objects', now(), 2, 'boom <!channel> postgresql://ada:geheim@db/shop')"
PASSES = "update trueup.scans set error = null"
LATER = "update trueup.alerts set since = since - interval '3 minutes'"


def alert(state: State, lasted_s: float = 0.0, problem: str = "boom") -> Alert:
    return Alert("sweeps", state, "error", problem, lasted_s, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("known", "failing", "step"),
    [
        (None, False, None),
        (None, True, AlertStep.NOTICE),
        (alert("noticed", 119), True, None),
        (alert("noticed", 120), True, AlertStep.RAISE),
        (alert("noticed", 500), False, AlertStep.FORGET),
        (alert("raised", 500), True, AlertStep.SEND_RAISED),
        (alert("raised", 500), False, AlertStep.RESOLVE),
        (alert("sent", 500), True, None),
        (alert("sent", 500), False, AlertStep.RESOLVE),
        (alert("resolved", 500), False, AlertStep.SEND_RESOLVED),
        (alert("resolved", 500), True, AlertStep.SEND_RESOLVED),
    ],
)
def test_the_next_step_follows_from_what_was_sent_and_what_fails(
    known: Alert | None, failing: bool, step: AlertStep | None
) -> None:
    assert next_step(known, failing, AFTER) == step


@pytest.mark.parametrize("step", SENDING)
def test_a_message_cannot_mention_a_channel(step: AlertStep) -> None:
    finding = Finding("sweeps", "error", "now", "correct it", 1.0, 0.0)
    document, _ = message("shop", step, alert("raised", 150.4, "<!channel> a & b"), finding)
    assert "&lt;!channel&gt; a &amp; b" in document["text"]
    assert "2m30s" in document["text"]
    assert document["alert"]["problem"] == "<!channel> a & b", "the facts are as they are"


class Fleet:
    """Two watchers that alert, looking only when they are told to."""

    def __init__(self, app: App, sink: Sink) -> None:
        self.app = app
        self.sink = sink
        self.watched = Watched(app)
        self.watchers = [self._watch(), self._watch()]

    def _watch(self) -> Watch:
        (watch,) = watching(self.app.store, self.app.settings, self.app.events, self.app._post_to)
        return watch

    async def look(self, times: int = 2) -> None:
        for _ in range(times):
            for each in self.watchers:
                await each.run_once()

    async def run(self, statement: str) -> None:
        async with self.app.transaction() as tx:
            await tx.execute(statement.encode())

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [json.loads(each.body) for each in self.sink.received]

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(each["alert"]["event"], each["alert"]["check"]) for each in self.sent]

    async def states(self) -> list[str]:
        return [row[0] for row in await self.app.store.pool.fetch(b"select state from trueup.alerts order by name")]


RAISED, RESOLVED = ("alert.raised", "sweeps"), ("alert.resolved", "sweeps")


@pytest_asyncio.fixture
async def fleet(database_url: str) -> AsyncIterator[Fleet]:
    async with Sink() as sink:
        limits = "workers=off"  # none runs here: the watchers look when the test tells them to
        async with App(
            database_url, alert_url=sink.url, outgoing_allow="127.0.0.1", check_limits=limits, service="shop"
        ) as app:
            yield Fleet(app, sink)


@pytest.mark.asyncio
async def test_a_finding_is_sent_once_after_it_has_lasted_and_once_when_it_is_resolved(fleet: Fleet) -> None:
    await fleet.run(FAILS)
    await fleet.look()
    assert (fleet.told, await fleet.states()) == ([], ["noticed"])
    await fleet.run(LATER)
    await fleet.look()
    assert (fleet.told, await fleet.states()) == ([RAISED], ["sent"])
    await fleet.run(PASSES)
    await fleet.look()
    assert (fleet.told, await fleet.states()) == ([RAISED, RESOLVED], [])
    raised, resolved = fleet.sent
    assert raised["text"].startswith("shop: error: sweeps: scan objects (2 in a row): boom &lt;!channel&gt; postgresql")
    assert "(for 3m" in raised["text"]
    assert not any(b"geheim" in each.body for each in fleet.sink.received)
    assert raised["alert"]["advice"] in raised["text"]
    assert resolved["text"].startswith("shop: resolved: sweeps passes again after 3m")
    (event,) = fleet.watched.of(AlertRaised)
    assert (event.check, event.severity) == ("sweeps", "error")
    assert "boom <!channel>" in event.problem
    assert len(fleet.watched.of(AlertResolved, check="sweeps")) == 1


@pytest.mark.asyncio
async def test_what_does_not_last_is_not_sent(fleet: Fleet) -> None:
    await fleet.run(FAILS)
    await fleet.look()
    await fleet.run(PASSES)
    await fleet.look()
    assert (fleet.sent, await fleet.states()) == ([], [])
    assert not fleet.watched.of(AlertRaised)


@pytest.mark.asyncio
@pytest.mark.parametrize("dies", [False, True])
async def test_another_watcher_goes_on_where_the_first_stopped(fleet: Fleet, dies: bool) -> None:
    first, second = fleet.watchers
    await fleet.run(FAILS)
    for statement, told in ((LATER, [RAISED]), (PASSES, [RAISED, RESOLVED])):
        await first.run_once()
        if statement == LATER:
            await fleet.run(statement)
            await first.run_once()
        else:
            await fleet.run(statement)
        if dies:
            await fleet.run("update trueup.leases set lease_until = now() where name = 'watch:alerts'")
        else:
            await first.stop()
        await second.run_once()
        assert fleet.told == told
        await second.stop()
    assert len(fleet.watched.of(AlertRaised)) == len(fleet.watched.of(AlertResolved)) == 1


@pytest.mark.asyncio
async def test_a_watcher_that_has_lost_its_lease_changes_nothing(fleet: Fleet) -> None:
    await fleet.run(FAILS)
    store, events = fleet.app.store, fleet.app.events
    alerts = AlertSender(store, fleet.app._post_to(fleet.app.settings.alert_url), timedelta(), events)  # type: ignore[arg-type]
    lead = fleet.watchers[0]._lead
    assert await lead.take()
    report = await check(store, {"workers": None})
    await fleet.run("update trueup.leases set lease_until = now() where name = 'watch:alerts'")
    await fleet.watchers[1].run_once()
    assert await fleet.states() == ["noticed"]
    await fleet.run(LATER)
    await alerts.saw(report, lead)
    assert (fleet.sent, await fleet.states()) == ([], ["noticed"])
    assert not fleet.watched.of(AlertRaised)


@pytest.mark.asyncio
async def test_a_database_that_could_not_be_asked_resolves_nothing(fleet: Fleet) -> None:
    await fleet.run(FAILS)
    await fleet.look(1)
    store = fleet.app.store
    lead = fleet.watchers[0]._lead
    alerts = AlertSender(store, fleet.app._post_to(fleet.app.settings.alert_url), AFTER, fleet.app.events)  # type: ignore[arg-type]
    await alerts.saw(Report((Finding("database", "error", "away", "start it"),)), lead)
    assert await fleet.states() == ["noticed"]


@pytest.mark.asyncio
async def test_a_webhook_that_refuses_is_tried_again_and_holds_up_no_other_alert(fleet: Fleet) -> None:
    fleet.sink.answers = [says(500)]
    await fleet.run(FAILS)
    await fleet.run(DEAD.format(age="1 min", count=1))  # its alert is the first in order
    await fleet.look()
    await fleet.run(LATER)
    await fleet.look(1)
    (failed,) = fleet.watched.of(ServiceFailed, service="alerts")
    assert "answered 500" in failed.error
    assert len(fleet.watched.of(AlertRaised)) == 2, "they are logged all the same"
    await fleet.look(1)
    keys = {each.headers["idempotency-key"] for each in fleet.sink.received}
    assert len(keys) == 1, "the receiver can tell that it is the same message"
    assert await fleet.states() == ["raised", "raised"]
    await fleet.run(PASSES)
    await fleet.look(1)
    assert await fleet.states() == ["raised", "resolved"]
    fleet.sink.received.clear()
    fleet.sink.answers = [says(200)]
    await fleet.look()
    assert fleet.told == [("alert.raised", "dead_letters"), RESOLVED]
    assert await fleet.states() == ["sent"]


@pytest.mark.asyncio
async def test_a_slow_webhook_does_not_make_two_watchers_send_the_same(fleet: Fleet) -> None:
    taken = says(200)

    async def slow(exchange: Exchange) -> None:
        """Ten seconds pass, as long as a delivery may take, and the other watcher looks."""
        await fleet.run("update trueup.leases set lease_until = lease_until - interval '10 seconds'")
        await fleet.watchers[1].run_once()
        await taken(exchange)

    await fleet.run(
        "insert into trueup.alerts (name, state, severity, problem, since)"
        " select 'check_' || n, 'resolved', 'error', 'was wrong', now() from generate_series(1, 8) as n"
    )
    fleet.sink.answers = [slow]
    await fleet.watchers[0].run_once()
    keys = [each.headers["idempotency-key"] for each in fleet.sink.received]
    assert len(keys) == len(set(keys)) == 8
    assert await fleet.states() == []


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_workers_of_a_fleet_alert_by_themselves_and_only_one_of_them(database_url: str) -> None:
    async with Sink() as sink:
        limits = "workers=off"  # the watch may look before the first worker is registered
        app = App(database_url, alert_url=sink.url, alert_after="0s", outgoing_allow="127.0.0.1", check_limits=limits)
        fleet = Fleet(app, sink)
        async with app.worker(), app.worker():
            await fleet.run(FAILS)
            await fleet.watched.seen(AlertRaised, check="sweeps")
            await until(lambda: RAISED in fleet.told)
            await fleet.run(PASSES)
            await fleet.watched.seen(AlertResolved, check="sweeps")
            await until(lambda: RESOLVED in fleet.told)
        await app.close()
    assert fleet.told == [RAISED, RESOLVED]


def test_workers_with_other_ports_and_pings_share_the_lease_of_alerts(database_url: str) -> None:
    app = App(database_url, alert_url="http://127.0.0.1:9/", ping_url="http://127.0.0.1:9/", outgoing_allow="127.0.0.1")
    alerts, others = watching(app.store, app.settings, app.events, app._post_to)
    assert alerts._lead.fence["lease"] == "watch:alerts"
    assert others._lead.fence["lease"] == "watch:ping"
    app.close_sync()
