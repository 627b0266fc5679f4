"""What can be configured; what cannot stops the start, under a code of its own."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import pytest

from apps.payments.config import Config
from tests.support import warm
from tests.support.processes import ROOT
from trueup import ConfigError

NODE = {"PAYMENT_REQUEST_CHAINS": "eip155:1=https://node.example/v1/hunter2"}
NAME = "PAYMENT_REQUEST_RECONCILER_"


def test_nothing_but_the_chains_is_needed() -> None:
    config = Config.from_environment(NODE)
    assert (config.enabled, config.batch_size) == (False, 100)
    assert (config.poll_interval, config.lease_for) == (timedelta(seconds=15), timedelta(seconds=30))
    assert config.worker_id == f"{socket.gethostname()}:{os.getpid()}"
    assert config.observer_timeout == timedelta(seconds=5)
    rules = config.rules("eip155:1")
    assert (rules.detected_bps, rules.confirmed_bps, rules.confirmations) == (10_000, 10_000, 1)
    assert rules.window == timedelta(seconds=86_400)


def test_everything_can_be_said() -> None:
    values = {
        "ENABLED": "true",
        "POLL_INTERVAL_SECONDS": "0.5",
        "BATCH_SIZE": "7",
        "LEASE_SECONDS": "60",
        "WORKER_ID": "blue-3",
        "DETECTED_THRESHOLD_BPS": "9000",
        "CONFIRMED_THRESHOLD_BPS": "9500",
        "EVM_MIN_CONFIRMATIONS": "12",
        "REORG_OBSERVE_WINDOW_SECONDS": "0",
        "EXPIRY_GRACE_SECONDS": "60",
        "OBSERVER_TIMEOUT_SECONDS": "2",
        "CONCURRENCY": "3",
    }
    nodes = "eip155:1=https://a.example/x, eip155:31337=http://127.0.0.1:8545"
    config = Config.from_environment(
        {"PAYMENT_REQUEST_CHAINS": nodes, **{NAME + name: value for name, value in values.items()}}
    )
    assert list(config.nodes) == ["eip155:1", "eip155:31337"]
    assert (config.enabled, config.batch_size, config.worker_id, config.concurrency) == (True, 7, "blue-3", 3)
    assert config.rules("eip155:1").confirmations == 12
    assert config.rules("eip155:1").window == timedelta(0)


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "ENABLED": ["", "TRUE", "1", "yes"],
        "POLL_INTERVAL_SECONDS": ["", "0", "-1", "nan", "1e3", "soon", "100000", "1 "],
        "BATCH_SIZE": ["", "0", "-5", "1.5", "10001", "٣"],
        "LEASE_SECONDS": ["", "0", "0.5", "-30", "inf", "30s", "999999999"],
        "WORKER_ID": ["", " ", "a b", "a\nb", "x" * 201],
        "DETECTED_THRESHOLD_BPS": ["0", "10001", "99.5", "-1"],
        "CONFIRMED_THRESHOLD_BPS": ["0", "10001", ""],
        "EVM_MIN_CONFIRMATIONS": ["0", "-1", "1000000"],
        "REORG_OBSERVE_WINDOW_SECONDS": ["-1", "day"],
        "EXPIRY_GRACE_SECONDS": ["-1", ""],
        "OBSERVER_TIMEOUT_SECONDS": ["0", "301"],
        "CONCURRENCY": ["0", "1001"],
    }.items(),
)
def test_a_bad_value_has_a_code(name: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=f"^CONFIG_RECONCILER_{name}_INVALID: {NAME}{name}="):
            Config.from_environment({**NODE, NAME + name: value})


@pytest.mark.parametrize(
    "value",
    [
        "",
        "eip155:1",
        "eip155:1=",
        "eip155:1=node.example/hunter2",
        "eip155:1=ftp://node.example/hunter2",
        "eip155:1=http://node.example:99999/hunter2",
        "eip155:one=http://node.example/hunter2",
        "ethereum=http://node.example/hunter2",
        "http://node.example/hunter2",
        "bip122:000000000019d6689c085ae165831e93=http://node.example/hunter2",
        "eip155:1=http://a.example/hunter2,eip155:1=http://b.example/hunter2",
    ],
)
def test_bad_chains_have_a_code_and_are_not_repeated(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^CONFIG_CHAINS_INVALID: PAYMENT_REQUEST_CHAINS: ") as error:
        Config.from_environment({"PAYMENT_REQUEST_CHAINS": value})
    assert "hunter2" not in str(error.value)


def test_a_node_s_address_is_nobody_else_s_business() -> None:
    assert "hunter2" not in repr(Config.from_environment(NODE))


@pytest.mark.slow
@pytest.mark.parametrize("command", [["apps.payments.reconciler"], ["apps.payments", "serve"]])
def test_the_start_is_refused_with_2(command: list[str]) -> None:
    environment = {"PATH": os.environ["PATH"], **NODE, f"{NAME}LEASE_SECONDS": "0"}
    ended = warm.run(*command, cwd=ROOT, env=environment)
    assert ended.returncode == 2
    assert "CONFIG_RECONCILER_LEASE_SECONDS_INVALID" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_every_variable_is_in_the_example_and_the_readme() -> None:
    source = (ROOT / "apps/payments/config.py").read_text()
    example, readme = (ROOT / "apps/payments" / name for name in (".env.example", "README.md"))
    names = [name for name in NAMES if f'"{name}"' in source or name.endswith("CONFIRMATIONS")]
    assert len(names) == len(NAMES)
    for name in names:
        assert NAME + name in example.read_text()
        assert f"`{name}`" in readme.read_text()


NAMES = [
    "ENABLED",
    "POLL_INTERVAL_SECONDS",
    "BATCH_SIZE",
    "LEASE_SECONDS",
    "WORKER_ID",
    "DETECTED_THRESHOLD_BPS",
    "CONFIRMED_THRESHOLD_BPS",
    "EVM_MIN_CONFIRMATIONS",
    "REORG_OBSERVE_WINDOW_SECONDS",
    "EXPIRY_GRACE_SECONDS",
    "OBSERVER_TIMEOUT_SECONDS",
    "CONCURRENCY",
]
