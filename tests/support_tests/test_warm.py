"""A forked process is what an executed one would be. Each test runs both, except where they must differ."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm
from tests.support.processes import ROOT

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=["forked", "executed"])
def start(request: pytest.FixtureRequest) -> Start:
    def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        kind = warm.Popen if request.param == "forked" else subprocess.Popen
        process = kind(
            [sys.executable, "-W", "error", "-m", "tests.support_tests.warm_program", *arguments],
            **{"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
        )
        assert (getattr(process, "_parent", None) is not None) == (request.param == "forked")
        return process

    return start


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "aside\n")
    answer: dict[str, Any] = json.loads(out)
    assert answer["pid"] == process.pid
    return answer


def test_it_has_the_arguments_environment_directory_and_options_it_was_given(start: Start, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRUEUP_SCHEMA": "theirs"}
    seen = told(start("tell", "a", "b c", cwd=tmp_path, env=environment))
    assert seen["argv"] == ["a", "b c"]
    assert seen["main"] == "tests.support_tests.warm_program"
    assert seen["environment"] | {"LC_CTYPE": ""} == environment | {"LC_CTYPE": ""}
    assert seen["directory"] == seen["path"] == str(tmp_path)
    assert seen["options"][-1] == "error"
    assert seen["threads"] == 1
    assert seen["files"] <= 4  # three, and the directory that is listed
    assert "default_int_handler" in seen["interrupted by"]


def test_a_variable_of_one_is_not_there_in_the_next(start: Start) -> None:
    told(start("tell", env={**os.environ, "LEFT_BEHIND": "1"}))
    assert "LEFT_BEHIND" not in told(start("tell"))["environment"]


def test_two_of_them_draw_different_numbers(start: Start) -> None:
    assert told(start("tell"))["random"] != told(start("tell"))["random"]


@pytest.mark.parametrize(
    ("arguments", "status", "out", "err"),
    [
        (("exit", "0"), 0, "the end", ""),
        (("exit", "7"), 7, "the end", ""),
        (("raise",), 1, "", "ValueError: of its own"),
        (("warn",), 1, "", "RuntimeWarning: an error here"),
        (("thread",), 0, "of a thread", ""),
    ],
)
def test_it_ends_as_an_interpreter_does(
    start: Start, arguments: tuple[str, ...], status: int, out: str, err: str
) -> None:
    process = start(*arguments)
    said, complained = process.communicate(timeout=60)
    assert (process.returncode, said.strip(), (complained.strip().splitlines() or [""])[-1]) == (status, out, err)


def test_it_reads_what_it_is_sent(start: Start) -> None:
    assert start("echo", stdin=subprocess.PIPE).communicate("a\nb", timeout=60)[0] == "a\nb\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_is_its_status(start: Start, number: signal.Signals) -> None:
    process = start("sleep")
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.poll() == process.returncode == -number
    process.send_signal(number)  # to nobody: the number may be another process's by now


def test_a_fault_is_armed_by_its_own_environment(start: Start) -> None:
    armed = start("fault", env={**os.environ, "TRUEUP_FAULT": "after_claim:kill"})
    armed.communicate(timeout=60)
    assert armed.returncode == -signal.SIGKILL
    plain = start("fault")
    plain.communicate(timeout=60)
    assert plain.returncode == 0


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (["-W", "error", "-X", "dev", "-m"], {}),
        (["-m"], {}),
        (["-W", "error", "-m"], {"env": {**os.environ, "LD_PRELOAD": ""}}),
        (["-W", "error", "-m"], {"env": {**os.environ, "FAKETIME": "+1h"}}),
        (["-W", "error", "-m"], {"start_new_session": True}),
        (["-W", "error", "-m"], {"preexec_fn": os.getpid}),
    ],
    ids=["dev", "no options", "preloaded", "another clock", "session", "preexec"],
)
def test_what_needs_a_new_interpreter_gets_one(options: list[str], more: dict[str, Any]) -> None:
    command = [sys.executable, *options, "tests.support_tests.warm_program", "exit", "0"]
    process = warm.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    process.communicate(timeout=60)
    assert (process.returncode, process._parent) == (0, None)
