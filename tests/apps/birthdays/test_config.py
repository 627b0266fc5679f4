"""What can be configured; what cannot stops the start, and is named."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.birthdays.config import Config
from apps.birthdays.delivery import webhook
from tests.support import warm
from tests.support.processes import ROOT
from trueup import ConfigError

URL = {"BIRTHDAYS_WEBHOOK_URL": "https://example.com/hook?token=hunter2"}


def test_nothing_but_the_url_is_needed() -> None:
    config = Config.from_environment(URL)
    assert (config.every, config.webhook_timeout) == (timedelta(seconds=60), timedelta(seconds=10))
    assert (config.rules.at, config.rules.leap_day) == ("09:00", "feb28")
    assert (config.rate, config.concurrency, config.webhook_secret) == (None, 10, None)
    webhook(config)


def test_everything_can_be_said() -> None:
    config = Config.from_environment(
        {
            **URL,
            "BIRTHDAYS_WEBHOOK_ALLOW": "127.0.0.1, 10.0.0.0/8",
            "BIRTHDAYS_SEND_AT": "10:30",
            "BIRTHDAYS_LEAP_DAY": "mar1",
            "BIRTHDAYS_RATE": "50/s",
        }
    )
    assert config.webhook_allow == ("127.0.0.1", "10.0.0.0/8")
    assert (config.rules.at, config.rules.leap_day, str(config.rate)) == ("10:30", "mar1", "50/s")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BIRTHDAYS_WEBHOOK_URL", ""),
        ("BIRTHDAYS_WEBHOOK_URL", "example.com"),
        ("BIRTHDAYS_WEBHOOK_URL", "ftp://example.com"),
        ("BIRTHDAYS_WEBHOOK_URL", "https://user:hunter2@example.com/"),
        ("BIRTHDAYS_WEBHOOK_URL", "http://127.0.0.1/hook"),
        ("BIRTHDAYS_WEBHOOK_SECRET", "whsec_hunter2!"),
        ("BIRTHDAYS_WEBHOOK_ALLOW", "not a network/99"),
        ("BIRTHDAYS_WEBHOOK_TIMEOUT", "0s"),
        ("BIRTHDAYS_WEBHOOK_TIMEOUT", "10"),
        ("BIRTHDAYS_SEND_AT", "25:00"),
        ("BIRTHDAYS_SEND_AT", "nine"),
        ("BIRTHDAYS_SEND_AT", ""),
        ("BIRTHDAYS_SEND_AT", "09:00+02:00"),
        ("BIRTHDAYS_LEAP_DAY", "feb29"),
        ("BIRTHDAYS_EVERY", "0s"),
        ("BIRTHDAYS_EVERY", "-1m"),
        ("BIRTHDAYS_EVERY", "soon"),
        ("BIRTHDAYS_LEASE_FOR", "10ms"),
        ("BIRTHDAYS_RATE", "fast"),
        ("BIRTHDAYS_RATE", "0/s"),
        ("BIRTHDAYS_CONCURRENCY", "0"),
        ("BIRTHDAYS_CONCURRENCY", "1e3"),
        ("BIRTHDAYS_CONCURRENCY", "٣"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        webhook(Config.from_environment({**URL, name: value}))
    assert "hunter2" not in str(refused.value)


def test_a_config_does_not_show_its_secrets() -> None:
    assert "hunter2" not in repr(Config.from_environment({**URL, "BIRTHDAYS_WEBHOOK_SECRET": "hunter2"}))


@pytest.mark.parametrize("command", ["worker", "serve", "seed"])
def test_a_start_without_the_url_ends_with_2_and_one_line(command: str) -> None:
    ended = warm.run("apps.birthdays", command, cwd=ROOT, env={})
    assert ended.returncode == 2
    assert ended.stderr.startswith("birthdays: BIRTHDAYS_WEBHOOK_URL: ")
    assert ended.stderr.count("\n") == 1
