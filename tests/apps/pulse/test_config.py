"""What can be configured; what cannot stops the start, and is named."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from apps.pulse.config import Config
from apps.pulse.plan import JOBS
from apps.pulse.service import build
from tests.support import warm
from tests.support.processes import ROOT
from trueup import ConfigError

REDIS = {"PULSE_REDIS_URL": "redis://:hunter2@localhost:6379/0"}
APP = ROOT / "apps/pulse"


def test_nothing_but_redis_is_needed() -> None:
    config = Config.from_environment(REDIS)
    assert (config.without_redis, config.lock_ttl) == ("skip", timedelta(seconds=60))
    assert config.settings == {"redis_url": REDIS["PULSE_REDIS_URL"], "redis_unavailable": "closed"}
    build(config)


def test_everything_can_be_said() -> None:
    config = Config.from_environment(
        {
            **REDIS,
            "PULSE_WITHOUT_REDIS": "run",
            "PULSE_LOCK_TTL": "20s",
            "PULSE_SCHEDULED_REPORT_SCHEDULE": "30 1 * * MON",
        }
    )
    assert config.settings["redis_unavailable"] == "open"
    assert config.lock_ttl == timedelta(seconds=20)
    assert config.schedules["scheduled-report"] == "30 1 * * MON"
    build(config)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PULSE_REDIS_URL", ""),
        ("PULSE_REDIS_URL", "localhost:6379"),
        ("PULSE_REDIS_URL", "http://:hunter2@localhost"),
        ("PULSE_REDIS_URL", "redis://:hunter2@localhost:port/0"),
        ("PULSE_REDIS_URL", "redis://a,redis://b"),
        ("PULSE_REDIS_URL", "redis://a,redis://b,redis://a"),
        ("PULSE_WITHOUT_REDIS", "maybe"),
        ("PULSE_WITHOUT_REDIS", ""),
        ("PULSE_WITHOUT_REDIS", "RUN"),
        ("PULSE_LOCK_TTL", "0s"),
        ("PULSE_LOCK_TTL", "60"),
        ("PULSE_LOCK_TTL", "-1m"),
        ("PULSE_LOCK_TTL", "1d"),
        ("PULSE_HEALTH_CHECK_SCHEDULE", ""),
        ("PULSE_HEALTH_CHECK_SCHEDULE", "often"),
        ("PULSE_HEALTH_CHECK_SCHEDULE", "* * * * * *"),
        ("PULSE_SCHEDULED_REPORT_SCHEDULE", "0 0 30 2 *"),
        ("PULSE_CONVERSATION_CLEANUP_SCHEDULE", "61 * * * *"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        Config.from_environment({**REDIS, name: value})
    assert "hunter2" not in str(refused.value)


def test_a_quorum_decides_and_cannot_be_run_without() -> None:
    three = {"PULSE_REDIS_URL": "redis://a,redis://b,redis://c"}
    Config.from_environment(three)
    with pytest.raises(ConfigError, match="PULSE_WITHOUT_REDIS"):
        Config.from_environment({**three, "PULSE_WITHOUT_REDIS": "run"})


def test_a_config_does_not_show_its_secrets() -> None:
    assert "hunter2" not in repr(Config.from_environment(REDIS))


@pytest.mark.parametrize("command", ["worker", "serve", "seed"])
def test_a_start_without_redis_ends_with_2_and_one_line(command: str) -> None:
    ended = warm.run("apps.pulse", command, cwd=ROOT, env={})
    assert ended.returncode == 2
    assert ended.stderr.startswith("pulse: PULSE_REDIS_URL: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("page", [APP / "README.md", APP / ".env.example"], ids=lambda page: page.name)
def test_a_page_names_every_variable(page: Path) -> None:
    text = page.read_text("utf-8")
    variables = ["PULSE_REDIS_URL", "PULSE_WITHOUT_REDIS", "PULSE_LOCK_TTL", *(job.variable for job in JOBS)]
    assert [variable for variable in variables if variable not in text] == []
