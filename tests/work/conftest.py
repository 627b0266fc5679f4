from __future__ import annotations

import pytest

from tests.support.watching import Watched
from trueup import App


@pytest.fixture
def events(app: App) -> Watched:
    return Watched(app)
