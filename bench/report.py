"""How a benchmark is called and how it answers: progress on the error output, its result as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console


def parser(description: str | None, **numbers: int) -> argparse.ArgumentParser:
    """A command line with these numbers as options, and `--json`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in numbers.items():
        made.add_argument(f"--{name}", type=int, default=default)
    made.add_argument("--json", action="store_true")
    return made


def progress(text: str) -> None:
    Console(stderr=True).print(text, style="dim", markup=False)


def report(result: dict[str, Any], show: Callable[[dict[str, Any], Console], None], *, as_json: bool) -> None:
    if as_json:
        json.dump(result, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        show(result, Console())
