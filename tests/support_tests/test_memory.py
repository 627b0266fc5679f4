from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import memory
from tests.support.memory import in_memory


@pytest.fixture(autouse=True)
def there_is_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(memory, "MEMORY", tmp_path)
    monkeypatch.setattr(memory, "ROOM", 1)


def test_files_are_in_memory_where_there_is_room(tmp_path: Path) -> None:
    assert in_memory() == tmp_path


def test_too_little_room_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "ROOM", 2**62)
    assert in_memory() is None


def test_a_system_without_such_a_place_uses_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "MEMORY", tmp_path / "nowhere")
    assert in_memory() is None


def test_a_place_that_was_asked_for_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    assert in_memory() is None
