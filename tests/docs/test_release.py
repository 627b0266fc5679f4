"""A release, made from a copy of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from datetime import date
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tools import quickstart, release

DAY = date(2026, 11, 16)
CHANGELOG = "# Changelog\n\nWhat changed.\n\nThere is no release yet.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two notes and no release."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes/a.md").write_text("First.\n\nMore about it,\nin two lines.\n")
    (tmp_path / "changes/b.md").write_text("Second.\n")
    return tmp_path


def test_notes_become_a_section_of_the_changelog(project: Path) -> None:
    release.fold(project, DAY)
    assert (project / "CHANGELOG.md").read_text() == (
        "# Changelog\n\nWhat changed.\n\n## 0.1.0 (2026-11-16)\n\n- First.\n\n  More about it, in two lines.\n- Second.\n"
    )
    assert list((project / "changes").iterdir()) == []


def test_the_newest_release_stands_above_the_older_ones(project: Path) -> None:
    release.fold(project, DAY)
    (project / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (project / "changes/c.md").write_text("Third.\n")
    release.fold(project, DAY)
    text = (project / "CHANGELOG.md").read_text()
    assert text.startswith("# Changelog\n\nWhat changed.\n\n## 0.2.0 (2026-11-16)\n\n- Third.\n\n## 0.1.0 (2026-11-16)")


def test_a_version_is_released_once_and_not_without_notes(project: Path) -> None:
    release.fold(project, DAY)
    with pytest.raises(release.NotReady, match=r"section for 0\.1\.0 already"):
        release.fold(project, DAY)
    (project / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    with pytest.raises(release.NotReady, match="changes/ is empty"):
        release.fold(project, DAY)


def test_a_tag_must_agree_with_version_changelog_and_notes(project: Path) -> None:
    with pytest.raises(release.NotReady, match=r"tag v0\.1\.0"):
        release.check(project, "v0.2.0")
    with pytest.raises(release.NotReady, match=r"no section for 0\.1\.0"):
        release.check(project, "v0.1.0")
    release.fold(project, DAY)
    release.check(project, "v0.1.0")
    (project / "changes/late.md").write_text("Too late.\n")
    with pytest.raises(release.NotReady, match=r"late\.md"):
        release.check(project, "v0.1.0")


def test_the_notes_of_this_repository_can_be_folded(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "changes", tmp_path / "changes")
    notes = len(list((ROOT / "changes").glob("*.md")))
    if notes:
        assert release.fold(tmp_path, DAY).count("\n- ") == notes


@pytest.mark.slow
def test_the_distributions_are_complete_and_the_wheel_runs_the_quick_start(tmp_path: Path, database_url: str) -> None:
    """Without a package index: the wheel is unpacked before this environment's packages. `make package` installs it for real."""
    sdist, wheel = release.build(ROOT, tmp_path)
    release.inspect(ROOT, sdist, wheel)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "unpacked")
    script = tmp_path / "quickstart.py"
    script.write_text(quickstart.first_example() + "\nimport trueup\nprint(trueup.__file__)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "unpacked"), "TRUEUP_DATABASE_URL": database_url}
    ran = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["Hello, Ada", str(tmp_path / "unpacked/trueup/__init__.py")]


@pytest.mark.parametrize(
    "name", ["trueup/.env", "id_rsa", "trueup/tls/server.key", "trueup/__pycache__/app.cpython-311.pyc"]
)
def test_a_distribution_with_a_secret_or_junk_is_refused(name: str) -> None:
    release._no_secrets(["trueup/app.py", "trueup/.env.example", "trueup/keys.py"])
    with pytest.raises(release.NotReady, match="must not be in a distribution"):
        release._no_secrets(["trueup/app.py", name])
