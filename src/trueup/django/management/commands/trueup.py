"""`manage.py trueup …`: the command line of trueup, with the project's App."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from trueup.cli.main import main

APP = "trueup.django:app"
OF_DJANGO = ("--settings", "--pythonpath")  # manage.py has used these already


class Command(BaseCommand):
    help = "trueup's command line with the project's App: manage.py trueup worker, status, jobs, migrate, …"
    requires_system_checks: Sequence[str] = []

    def run_from_argv(self, argv: list[str]) -> None:
        # `worker --processes` starts further ones, which must find the project as manage.py has.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))
        sys.exit(self._run(without_djangos(argv[2:])))

    def print_help(self, prog_name: str, subcommand: str) -> None:
        self._run(["--help"])

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *_: Any, **options: Any) -> None:
        """For `call_command("trueup", "status", …)`."""
        code = self._run(options["arguments"])
        if code:
            raise CommandError(f"trueup {' '.join(options['arguments'])} failed", returncode=code)

    def _run(self, arguments: list[str]) -> int:
        return main(["--app", APP, *arguments])


def without_djangos(arguments: Sequence[str]) -> list[str]:
    left: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument in OF_DJANGO:
            next(given, None)
        elif not argument.startswith(tuple(f"{name}=" for name in OF_DJANGO)):
            left.append(argument)
    return left
