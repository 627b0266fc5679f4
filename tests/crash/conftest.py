from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.run import Run, run


@pytest.fixture
def crash(database_url: str, tmp_path: Path) -> Iterator[Run]:
    with run(database_url, tmp_path) as this:
        yield this
