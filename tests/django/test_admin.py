"""The admin shows jobs, changes nothing by itself, and does to them what people may do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client

from tests.django.shop.jobs import doomed, note
from tests.django.shop.models import Order
from trueup import App, GiveUp
from trueup.django import get_app
from trueup.django.application import DjangoApp
from trueup.django.models import EndedJob, LiveJob, QuarantinedRow
from trueup.django.testing import run_jobs


@pytest.fixture
def site(project: DjangoApp) -> Iterator[None]:
    call_command("migrate", verbosity=0)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def login(*permissions: str) -> Client:
    user = User.objects.create_user("ada", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


LIVE, ENDED = "/admin/trueup/livejob/", "/admin/trueup/endedjob/"


def act(client: Client, page: str, action: str, *ids: int) -> str:
    response = client.post(page, {"action": action, "_selected_action": ids}, follow=True)
    assert response.status_code == 200
    return str(response.content.decode())


def test_jobs_are_listed_and_shown(site: None) -> None:
    job_id = note.using(delay="1h").enqueue_sync("hello")
    note.enqueue_sync('{"password": "hunter2"}')
    doomed.enqueue_sync()
    run_jobs(reraise=False)
    dead = EndedJob.objects.get(state="dead")
    client = login("view_livejob", "view_endedjob")
    assert "note" in client.get(LIVE).content.decode()
    assert "LookupError: not there" in client.get(ENDED, {"state": "dead", "kind": "doomed"}).content.decode()
    assert client.get(LIVE, {"q": str(job_id)}).status_code == 200
    page = client.get(f"{LIVE}{job_id}/change/").content.decode()
    assert "hello" in page
    assert "_save" not in page  # nothing can be edited
    assert "Traceback" in client.get(f"{ENDED}{dead.pk}/change/").content.decode()
    for forbidden in (f"{LIVE}add/", f"{LIVE}{job_id}/delete/"):
        assert client.get(forbidden).status_code == 403
    assert client.post(f"{LIVE}{job_id}/change/", {"kind": "other"}).status_code == 403


def test_secrets_in_arguments_are_hidden(site: None) -> None:
    job_id = note.using(delay="1h").enqueue_sync("postgresql://ada:hunter2@db/shop")
    page = login("view_livejob").get(f"{LIVE}{job_id}/change/").content.decode()
    assert "hunter2" not in page


def test_actions_need_the_permission_to_change(site: None) -> None:
    job_id = note.using(delay="1h").enqueue_sync("x")
    act(login("view_livejob"), LIVE, "cancel", job_id)
    assert LiveJob.objects.get().state == "queued"


@pytest.fixture
def operator(site: None) -> Client:
    return login("view_livejob", "view_endedjob", "change_livejob")


def test_live_jobs_are_run_now_and_cancelled(operator: Client) -> None:
    first, second = note.using(delay="1h").enqueue_sync("x"), note.using(delay="1h").enqueue_sync("y")
    assert run_jobs() == []
    assert "1 made due" in act(operator, LIVE, "run_now", first)
    assert [ran.job_id for ran in run_jobs()] == [first]
    assert "1 cancelled or asked to stop" in act(operator, LIVE, "cancel", second)
    recorded = get_app().actions.list_sync(job=second).actions
    assert [(each.actor, each.via, each.action) for each in recorded] == [("ada", "web", "cancel")]
    ended: Any = EndedJob.objects.get(pk=second)
    assert (ended.state, ended.reason) == ("cancelled", "cancelled in the admin by ada")
    assert [str(entry.change_message) for entry in LogEntry.objects.order_by("id")] == [
        "made due",
        "cancelled or asked to stop",
    ]


def test_dead_jobs_are_revived_and_discarded(operator: Client) -> None:
    ids = [doomed.enqueue_sync(), doomed.enqueue_sync()]
    done = note.enqueue_sync("done")
    run_jobs(reraise=False)
    assert "1 revived; 1 could not be" in act(operator, ENDED, "revive", ids[0], done)
    assert LiveJob.objects.get().pk == ids[0]
    assert "1 discarded" in act(operator, ENDED, "discard", ids[1])
    assert EndedJob.objects.get(pk=ids[1]).state == "cancelled"
    assert "No dead job" in act(operator, ENDED, "discard", done)


ROWS = "/admin/trueup/quarantinedrow/"


def set_aside(url: str, *names: str) -> None:
    """Each of these reconcilers looks at every order, and gives each of them up."""

    async def sweep() -> None:
        async with App(url) as app:
            for name in names:

                @app.table("shop_order", key="id", state="state").reconcile("new", every=None, name=name)
                async def look(order: Any) -> None:
                    raise GiveUp(f"{order.number} has no price")

                await app.reconcilers.run(name)

    asyncio.run(sweep())


@pytest.fixture
def orders(site: None, database_url: str) -> list[QuarantinedRow]:
    for number in (7, 8):
        Order.objects.create(number=number)
    set_aside(database_url, "price", "ship")
    return list(QuarantinedRow.objects.order_by("reconciler", "key"))


def test_quarantined_rows_are_listed_and_shown(orders: list[QuarantinedRow]) -> None:
    client = login("view_quarantinedrow")
    page = client.get(ROWS).content.decode()
    assert page.count("GiveUp: 7 has no price") == 2
    assert "4 quarantined rows" in page
    assert "8 has no price" in client.get(f"{ROWS}{orders[1].pk}/change/").content.decode()
    assert "Release selected" not in page, "that needs the permission to change"
    for forbidden in (f"{ROWS}add/", f"{ROWS}{orders[0].pk}/delete/"):
        assert client.get(forbidden).status_code == 403


def test_quarantined_rows_are_released_and_discarded(orders: list[QuarantinedRow]) -> None:
    client = login("view_quarantinedrow", "change_quarantinedrow")
    first, second, third, fourth = (row.pk for row in orders)
    assert "2 released" in act(client, ROWS, "release", first, third)
    assert "1 discarded" in act(client, ROWS, "discard", second)
    left = {row.pk: row.state for row in QuarantinedRow.objects.as_listed()}
    assert left == {second: "discarded", fourth: "quarantined"}
    assert "1 released" in act(client, ROWS, "release", second), "also one that was discarded"
    actions = get_app().actions.list_sync().actions
    recorded = [(each.actor, each.via, each.action, each.name) for each in actions if each.action != "run"]
    assert sorted(recorded) == [
        ("ada", "web", "discard", "price"),
        ("ada", "web", "release", "price"),
        ("ada", "web", "release", "price"),
        ("ada", "web", "release", "ship"),
    ]


def test_a_row_that_was_claimed_anew_meanwhile_is_not_released_by_an_old_page(
    orders: list[QuarantinedRow], database_url: str
) -> None:
    client = login("view_quarantinedrow", "change_quarantinedrow")
    seen = orders[0].pk
    act(client, ROWS, "release", seen)
    set_aside(database_url, "price")
    again = QuarantinedRow.objects.as_listed().get(reconciler="price", key=orders[0].key)
    assert again.pk != seen
    act(client, ROWS, "release", seen)
    assert QuarantinedRow.objects.as_listed().filter(pk=again.pk).exists()
