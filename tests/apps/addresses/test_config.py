"""What can be configured; what cannot stops the start, and is named."""

from __future__ import annotations

import shlex
from datetime import timedelta
from pathlib import Path

import pytest

import apps.addresses
from apps.addresses.__main__ import main
from apps.addresses.config import Config
from trueup import ConfigError, Rate


def test_nothing_needs_to_be_said() -> None:
    config = Config.from_environment({})
    assert (config.scheduler_enabled, config.worker_enabled, config.cron) == (False, False, "0 2 * * *")
    assert config.polling_interval == timedelta(seconds=5)
    assert (config.provider_rate, config.page_blocks, config.providers) == (Rate.parse("1/s"), 25, {})


def test_everything_can_be_said() -> None:
    config = Config.from_environment(
        {
            "RECONCILIATION_SCHEDULER_ENABLED": "true",
            "RECONCILIATION_WORKER_ENABLED": "true",
            "RECONCILIATION_CRON_SCHEDULE": "*/5 * * * *",
            "RECONCILIATION_POLLING_INTERVAL_MS": "250",
            "RECONCILIATION_PROVIDERS": " ethereum=https://node.example/v3/key=1, polygon=http://10.0.0.1:8545 ,",
            "RECONCILIATION_PROVIDER_RATE": "5/s",
        }
    )
    assert (config.scheduler_enabled, config.worker_enabled, config.cron) == (True, True, "*/5 * * * *")
    assert config.polling_interval == timedelta(milliseconds=250)
    assert config.providers == {"ethereum": "https://node.example/v3/key=1", "polygon": "http://10.0.0.1:8545"}


@pytest.mark.parametrize("name", ["RECONCILIATION_SCHEDULER_ENABLED", "RECONCILIATION_WORKER_ENABLED"])
@pytest.mark.parametrize("word", ["", "false", "True", "TRUE", "1", "on", "yes", "true "])
def test_only_true_is_true(name: str, word: str) -> None:
    config = Config.from_environment({name: word})
    assert not config.scheduler_enabled
    assert not config.worker_enabled


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RECONCILIATION_CRON_SCHEDULE", ""),
        ("RECONCILIATION_CRON_SCHEDULE", "daily"),
        ("RECONCILIATION_CRON_SCHEDULE", "0 25 * * *"),
        ("RECONCILIATION_CRON_SCHEDULE", "0 0 30 2 *"),
        ("RECONCILIATION_CRON_SCHEDULE", "0 2 * *"),
        ("RECONCILIATION_POLLING_INTERVAL_MS", ""),
        ("RECONCILIATION_POLLING_INTERVAL_MS", "0"),
        ("RECONCILIATION_POLLING_INTERVAL_MS", "-5"),
        ("RECONCILIATION_POLLING_INTERVAL_MS", "5s"),
        ("RECONCILIATION_POLLING_INTERVAL_MS", "1e3"),
        ("RECONCILIATION_POLLING_INTERVAL_MS", "²"),
        ("RECONCILIATION_POLLING_INTERVAL_MS", "99999999"),
        ("RECONCILIATION_PROVIDERS", "https://node.example/hunter2"),
        ("RECONCILIATION_PROVIDERS", "ethereum=hunter2"),
        ("RECONCILIATION_PROVIDERS", "ethereum=ftp://node.example/hunter2"),
        ("RECONCILIATION_PROVIDERS", "etherum=https://node.example/hunter2"),
        ("RECONCILIATION_PROVIDERS", "bitcoin=https://node.example/hunter2"),
        ("RECONCILIATION_PROVIDERS", "ETHEREUM=https://node.example/hunter2"),
        ("RECONCILIATION_PROVIDERS", "ethereum=https://a.example/,ethereum=https://b.example/hunter2"),
        ("RECONCILIATION_PROVIDER_RATE", "0/s"),
        ("RECONCILIATION_PROVIDER_RATE", "fast"),
        ("RECONCILIATION_PROVIDER_TIMEOUT", "0s"),
        ("RECONCILIATION_PROVIDER_TIMEOUT", "10"),
        ("RECONCILIATION_PAGE_BLOCKS", "0"),
        ("RECONCILIATION_PAGE_BLOCKS", "100000"),
        ("RECONCILIATION_CONCURRENCY", "0"),
        ("RECONCILIATION_LEASE_FOR", "10ms"),
        ("RECONCILIATION_PAUSE_FOR", "0s"),
        ("RECONCILIATION_TURN_FOR", "0s"),
    ],
)
def test_a_bad_value_is_named_and_a_key_is_not_repeated(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as error:
        Config.from_environment({name: value})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_bad_value_stops_the_start_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("RECONCILIATION_PROVIDERS", "ethereum=hunter2")
    assert main([command]) == 2
    said = capsys.readouterr().err
    assert said.startswith("addresses: RECONCILIATION_PROVIDERS: part 1 is not a chain and its node")
    assert "hunter2" not in said


def test_urls_are_not_shown() -> None:
    config = Config.from_environment({"RECONCILIATION_PROVIDERS": "ethereum=https://node.example/hunter2"})
    assert "hunter2" not in repr(config)


def test_the_example_names_every_variable_and_can_be_read() -> None:
    folder = Path(apps.addresses.__file__).parent
    example = (folder / ".env.example").read_text("utf-8")
    source = (folder / "config.py").read_text("utf-8")
    names = {word.strip('"') for word in source.replace("(", " ").replace(",", " ").replace(")", " ").split()}
    ours = {name for name in names if name.startswith("RECONCILIATION_")}
    assert len(ours) == 15
    given = dict(line.lstrip("# ").split("=", 1) for line in example.splitlines() if "=" in line)
    assert ours <= given.keys()
    Config.from_environment({name: shlex.split(given[name])[0] for name in ours})
    readme = (folder / "README.md").read_text("utf-8")
    assert all(f"`{name}`" in readme for name in ours)
