"""`manage.py trueup …`, and what it tells people to type."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from trueup import SchemaMismatch
from trueup.django import get_app
from trueup.django.application import DjangoApp
from trueup.operate.checks import advice


def test_commands_in_errors_and_advice_are_those_of_manage_py(empty: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError):
        call_command("trueup", "status")
    assert (
        "run `python manage.py trueup migrate` (or `python manage.py trueup worker --migrate`)"
        in capfd.readouterr().err
    )
    with pytest.raises(SchemaMismatch, match=r"run `python manage\.py trueup migrate`"):
        get_app().store.check_schema()
    with pytest.raises(CommandError):
        call_command("trueup", "statsu")
    assert "try: python manage.py trueup --help" in capfd.readouterr().err


def test_an_empty_project_is_told_how_to_start_a_worker(project: DjangoApp, capfd: pytest.CaptureFixture[str]) -> None:
    call_command("trueup", "status")
    assert "no worker runs; start one: python manage.py trueup worker\n" in capfd.readouterr().out
    assert advice("workers") == "start one: python manage.py trueup worker; if one should be running, check its log"
    assert "see: python manage.py trueup status" in advice("of a newer release")


def test_a_worker_names_the_modules_that_declare_the_kinds_of_djangos_tasks(project: DjangoApp) -> None:
    declared = {event.module_name: event.jobs for event in project._declared_by.events([])}
    assert "django.task" in declared["trueup.django.tasks"]
    assert not [name for name in declared if name.startswith("importlib")]
