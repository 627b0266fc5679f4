"""What can be configured; what cannot stops the start, and is named."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.wallpapers.config import Config
from apps.wallpapers.service import build
from tests.support import warm
from tests.support.processes import ROOT
from trueup import App, ConfigError

NEEDED = {
    "S3_ENDPOINT_URL": "http://127.0.0.1:8333",
    "S3_ACCESS_KEY_ID": "local",
    "S3_SECRET_ACCESS_KEY": "hunter2",
    "NATS_URL": "nats://127.0.0.1:4222",
}


def test_the_intervals_are_those_of_the_sweeps() -> None:
    config = Config.from_environment(NEEDED)
    assert (config.every, config.cleanup_every) == (timedelta(minutes=5), timedelta(hours=24))
    assert (config.stuck_after, config.missing_after) == (timedelta(minutes=10), timedelta(minutes=5))
    assert (config.intent_for, config.grace, config.max_fraction) == (timedelta(hours=1), timedelta(hours=24), 0.2)


def test_intervals_are_given_in_milliseconds() -> None:
    config = Config.from_environment(
        {**NEEDED, "RECONCILIATION_INTERVAL_MS": "1500", "MINIO_CLEANUP_INTERVAL_MS": "60000"}
    )
    assert (config.every, config.cleanup_every) == (timedelta(seconds=1.5), timedelta(minutes=1))


@pytest.mark.parametrize(
    ("argument", "variable", "bucket"),
    [("given", "named", "given"), (None, "named", "named"), (None, "", "wallpapers"), (None, None, "wallpapers")],
)
def test_the_bucket_is_the_argument_or_the_variable_or_wallpapers(
    argument: str | None, variable: str | None, bucket: str
) -> None:
    environment = NEEDED if variable is None else {**NEEDED, "S3_BUCKET": variable}
    assert Config.from_environment(environment, bucket=argument).storage.bucket == bucket


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("S3_ENDPOINT_URL", ""),
        ("S3_ENDPOINT_URL", "127.0.0.1:8333"),
        ("S3_ENDPOINT_URL", "http://me:hunter2@127.0.0.1:8333"),
        ("S3_ACCESS_KEY_ID", ""),
        ("S3_SECRET_ACCESS_KEY", " "),
        ("S3_BUCKET", "No_Such"),
        ("S3_BUCKET", "ab"),
        ("S3_TIMEOUT", "0s"),
        ("NATS_URL", "http://127.0.0.1"),
        ("NATS_URL", "nats://me:hunter2@:port"),
        ("NATS_STREAM", "a.b"),
        ("RECONCILIATION_INTERVAL_MS", "0"),
        ("RECONCILIATION_INTERVAL_MS", "-1"),
        ("RECONCILIATION_INTERVAL_MS", "5m"),
        ("RECONCILIATION_INTERVAL_MS", "1e3"),
        ("RECONCILIATION_INTERVAL_MS", "9" * 12),
        ("MINIO_CLEANUP_INTERVAL_MS", "999"),
        ("WALLPAPERS_STUCK_AFTER", "soon"),
        ("WALLPAPERS_MISSING_AFTER", "0s"),
        ("WALLPAPERS_INTENT_FOR", "-1h"),
        ("WALLPAPERS_PROCESSING_FOR", ""),
        ("WALLPAPERS_ORPHAN_GRACE", "0s"),
        ("WALLPAPERS_ORPHAN_MAX_FRACTION", "0"),
        ("WALLPAPERS_ORPHAN_MAX_FRACTION", "1.1"),
        ("WALLPAPERS_ORPHAN_MAX_FRACTION", "nan"),
        ("WALLPAPERS_LEASE_FOR", "10ms"),
        ("WALLPAPERS_PAUSE_FOR", "1"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        build(Config.from_environment({**NEEDED, name: value}), App("postgresql://nobody@localhost/nothing"))
    assert "hunter2" not in str(refused.value)


def test_a_config_does_not_show_its_secrets() -> None:
    config = Config.from_environment({**NEEDED, "NATS_URL": "nats://me:hunter2@127.0.0.1:4222"})
    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(config.storage)


@pytest.mark.parametrize("command", ["serve", "orphans"])
def test_a_start_without_a_storage_ends_with_2_and_one_line(command: str) -> None:
    ended = warm.run("apps.wallpapers", command, cwd=ROOT, env={})
    assert ended.returncode == 2
    assert ended.stderr.startswith("wallpapers: S3_ENDPOINT_URL: ")
    assert ended.stderr.count("\n") == 1
