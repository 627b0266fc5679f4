"""The site builds without a warning, and a reader's browser asks nobody else for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]+)\"")
IMPORTED = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    return directory


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert (site / "index.html").is_file()


def test_the_site_asks_no_other_host_for_anything(site: Path) -> None:
    asked = [found for page in site.rglob("*.html") for found in LOADED.findall(page.read_text("utf-8"))]
    asked += [found for sheet in site.rglob("*.css") for found in IMPORTED.findall(sheet.read_text("utf-8"))]
    assert asked == []
