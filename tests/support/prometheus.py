"""Debian's Prometheus with its tools: promtool, and a server that scrapes and an Alertmanager that notifies, both on loopback."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.debian import unpack
from tests.support.ports import LOOPBACK, number, reserve

PACKAGES = ("prometheus", "prometheus-alertmanager")
STOP_TIMEOUT = 10

# Debian's Alertmanager reads its templates from this directory, which is there only where the package is installed. In a copy of the
# program the name is replaced by one of the same length, which leads to its working directory.
TEMPLATES = b"/usr/share/prometheus/alertmanager"
HERE = b"/proc/self/cwd" + b"/." * 10
assert len(HERE) == len(TEMPLATES)


def program(name: str) -> str:
    return str(unpack(PACKAGES) / "usr/bin" / name)


def promtool(*arguments: str, given: bytes = b"") -> str:
    """What it says. Raises AssertionError with that when it finds fault."""
    done = subprocess.run(
        [program("promtool"), *arguments], input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    return said


def _alertmanager() -> str:
    """A copy that finds its templates when it runs in their directory of the unpacked tree; made once."""
    copy = Path(program("alertmanager-in-tree"))
    if not copy.exists():
        patched = Path(program("prometheus-alertmanager")).read_bytes().replace(TEMPLATES, HERE)
        with tempfile.NamedTemporaryFile(dir=copy.parent, delete=False) as file:
            file.write(patched)
        Path(file.name).chmod(0o755)
        Path(file.name).rename(copy)
    return str(copy)


@contextmanager
def alerting(directory: Path, rules: str, target: int, webhook: str) -> Iterator[list[Path]]:
    """A Prometheus that scrapes this port every second, and an Alertmanager that posts what its rules raise. Yields their logs."""
    with ExitStack() as stack:
        ports = [number(stack.enter_context(reserve())) for _ in range(2)]
        (directory / "rules.yml").write_text(rules, "utf-8")
        configs: dict[str, dict[str, Any]] = {
            "prometheus": {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(directory / "rules.yml")],
                "scrape_configs": [
                    {"job_name": "shop", "static_configs": [{"targets": [f"{LOOPBACK}:{target}"]}]},
                ],
                "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"{LOOPBACK}:{ports[1]}"]}]}]},
            },
            "alertmanager": {
                "route": {"receiver": "webhook", "group_wait": "0s", "group_interval": "1s"},
                "receivers": [{"name": "webhook", "webhook_configs": [{"url": webhook}]}],
            },
        }
        for name, config in configs.items():
            (directory / f"{name}.yml").write_text(json.dumps(config), "utf-8")  # JSON is YAML, too
        commands = (
            [program("prometheus"), "--storage.tsdb.path", str(directory / "tsdb")],
            [_alertmanager(), "--storage.path", str(directory / "am"), "--cluster.listen-address="],
        )
        logs = []
        for name, command, port in zip(configs, commands, ports, strict=True):
            logs.append(directory / f"{name}.log")
            at = ["--config.file", str(directory / f"{name}.yml"), "--web.listen-address", f"{LOOPBACK}:{port}"]
            stack.enter_context(_running([*command, *at], logs[-1]))
        yield logs


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        cwd = unpack(PACKAGES) / TEMPLATES.decode().lstrip("/")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
