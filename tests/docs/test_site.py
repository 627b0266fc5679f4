"""The site builds without a warning, has what readers expect, and a reader's browser asks no other host for anything."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, ROOT

LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]+)\"")
IMPORTED = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)")
MERMAID = re.compile(r'class="[^"]*\bmermaid\b|^stateDiagram', re.MULTILINE)
# What people type who know the field, and not trueup's own words.
TERMS = (
    *(
        "at least once",
        "exactly once",
        "dead letter",
        "poison message",
        "exponential backoff",
        "jitter",
        "circuit breaker",
    ),
    *(
        "rate limit",
        "throttling",
        "concurrency limit",
        "multi-tenant",
        "backpressure",
        "priority",
        "debounce",
        "singleton",
    ),
    *("distributed lock", "leader election", "advisory lock", "fencing token", "heartbeat", "visibility timeout"),
    *("idempotency key", "deduplication", "outbox", "skip locked", "background job", "task queue", "message broker"),
    *("backfill", "misfire", "coalesce", "catch up", "daylight saving", "time zone"),
    *("graceful shutdown", "sigterm", "rolling deploy", "failover", "pgbouncer", "kubernetes", "systemd", "docker"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy, so that the checkout stays as it is."""
    project = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "mkdocs.yml", project)
    shutil.copytree(DOCS, project / "docs")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=100)
    assert built.returncode == 0, built.stdout + built.stderr
    return project / "site"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert (site / "index.html").is_file()


def test_the_site_asks_no_other_host_for_anything(site: Path) -> None:
    asked = [found for page in site.rglob("*.html") for found in LOADED.findall(page.read_text("utf-8"))]
    asked += [found for sheet in site.rglob("*.css") for found in IMPORTED.findall(sheet.read_text("utf-8"))]
    assert asked == []


def test_no_diagram_is_left_to_the_script_that_draws_mermaid(site: Path) -> None:
    """The theme would fetch it from another host, and without it the page shows the text: tools/diagrams.py draws diagrams."""
    assert [page.name for page in site.rglob("*.html") if MERMAID.search(page.read_text("utf-8"))] == []


def test_code_is_highlighted_and_can_be_copied_in_a_light_and_a_dark_scheme(site: Path) -> None:
    page = (site / "tutorial/first-job.html").read_text("utf-8")
    assert '<span class="k">' in page
    assert "content.code.copy" in page
    assert {"default", "slate"} <= set(re.findall(r'data-md-color-scheme="(\w+)"', page))


def test_the_search_finds_the_terms_people_look_for(site: Path) -> None:
    indexed = json.dumps(json.loads((site / "search.json").read_text("utf-8"))).lower()
    assert [term for term in TERMS if term not in indexed] == []


def test_a_search_leads_to_guides_and_not_to_the_decisions_behind_them(site: Path) -> None:
    items = json.loads((site / "search.json").read_text("utf-8"))["items"]
    assert [item["location"] for item in items if item["location"].startswith("decisions/")] == []
    assert (site / "decisions/0054-django.html").is_file()


def test_every_page_is_in_the_navigation() -> None:
    listed = set(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    written = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert written - listed == {name for name in written if re.match(r"decisions/0", name)}
    assert listed <= written


def pages_of(entries: list[object]) -> list[str]:
    found: list[str] = []
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            found += pages_of(value) if isinstance(value, list) else [str(value)]
    return found
