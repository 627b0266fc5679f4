from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trueup.embedded import nonroot

AM_ROOT = os.geteuid() == 0


@pytest.fixture
def forgetful() -> Iterator[None]:
    """What was found out about this process is found out anew, and again after the test."""
    nonroot.way.cache_clear()
    yield
    nonroot.way.cache_clear()


def test_programs_do_not_see_themselves_as_root() -> None:
    way = nonroot.way()
    seen = subprocess.run([*way.prefix, "id", "-u"], capture_output=True, text=True, check=True, **way.options).stdout
    assert int(seen) != 0


def test_root_without_user_namespaces_becomes_nobody_and_others_stay_who_they_are(
    forgetful: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no `unshare` to be found
    assert nonroot.way() == (nonroot.AS_NOBODY if AM_ROOT else nonroot.DIRECT)


def test_files_are_given_away_only_to_a_user_who_is_not_us(tmp_path: Path) -> None:
    for way in (nonroot.DIRECT, nonroot.IN_NAMESPACE, *([nonroot.AS_NOBODY] if AM_ROOT else [])):
        way.own(tmp_path)
        assert tmp_path.stat().st_uid == way.uid
