from __future__ import annotations

import pytest

from tests.store.desk import Desk
from trueup.store.store import Store


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)
