"""A PostgreSQL of its own for a benchmark: durable settings, as in production, on a fresh directory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueup.embedded.cluster import Cluster

DURABLE = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "max_connections": "100",
}


@contextmanager
def server() -> Iterator[Cluster]:
    """A fresh server; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
        cluster = Cluster(Path(directory), settings=DURABLE)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop("immediate")
