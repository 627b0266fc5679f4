from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.debian import DebianError, library_path, unpack
from tests.support.waiting import wait_until

CHECKOUT = Path(__file__).parents[2]
UNPACK = """
import sys
from pathlib import Path
from tests.support.debian import unpack
unpack(sys.argv[2:], cache=Path(sys.argv[1]))
"""


class Mirror:
    """An archive of our own on loopback, and the only source apt knows during a test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.requested: list[str] = []
        self.serving_packages = threading.Event()
        self.serving_packages.set()
        self.package_requested = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(MirrorRequest, self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def source(self) -> str:
        return f"deb [trusted=yes] http://127.0.0.1:{self._server.server_port} ./\n"

    def add(self, name: str, files: dict[str, str]) -> None:
        content = self.directory / "content" / name
        for path, text in {**files, "DEBIAN/control": control(name)}.items():
            (content / path).parent.mkdir(parents=True, exist_ok=True)
            (content / path).write_text(text)
        archive = self.directory / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", content, archive], check=True, capture_output=True)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        entry = f"{control(name)}Filename: ./{archive.name}\nSize: {archive.stat().st_size}\nSHA256: {digest}\n\n"
        with (self.directory / "Packages").open("a") as index:
            index.write(entry)

    def close(self) -> None:
        self.serving_packages.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class MirrorRequest(SimpleHTTPRequestHandler):
    def __init__(self, mirror: Mirror, *arguments: object) -> None:
        self.mirror = mirror
        super().__init__(*arguments, directory=str(mirror.directory))  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.mirror.requested.append(self.path)
        if self.path.endswith(".deb"):
            self.mirror.package_requested.set()
            self.mirror.serving_packages.wait(timeout=30)
        super().do_GET()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def control(name: str) -> str:
    return f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: none\nDescription: {name}\n"


@pytest.fixture
def apt_hook_ran(tmp_path: Path) -> Path:
    return tmp_path / "hook-ran"


@pytest.fixture
def mirror(tmp_path: Path, apt_hook_ran: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    archive = tmp_path / "mirror"
    archive.mkdir()
    mirror = Mirror(archive)
    mirror.add("hello", {"usr/bin/hello": "hello"})
    mirror.add("libhello", {"usr/lib/x86_64-linux-gnu/libhello.so": "library"})
    (tmp_path / "sources.list").write_text(mirror.source)
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{tmp_path}/sources.list";\n'
        'Dir::Etc::SourceParts "/dev/null";\n'
        'Acquire::http::Proxy::127.0.0.1 "DIRECT";\n'
        'Acquire::Retries::Delay "false";\n'
        f'APT::Update::Post-Invoke {{ "touch {apt_hook_ran}"; }};\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    yield mirror
    mirror.close()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def start_unpacking(cache: Path, *packages: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", UNPACK, cache, *packages], cwd=CHECKOUT, start_new_session=True)


def waits_for_a_file_lock(pid: int) -> bool:
    locks = Path("/proc/locks").read_text().splitlines()
    return any("-> FLOCK" in lock and str(pid) in lock.split() for lock in locks)


def test_the_tree_holds_the_files_of_every_package(mirror: Mirror, cache: Path) -> None:
    tree = unpack(["libhello", "hello"], cache=cache)
    assert (tree / "usr/bin/hello").read_text() == "hello"
    assert (tree / "usr/lib/x86_64-linux-gnu/libhello.so").read_text() == "library"
    assert library_path(tree) == str(tree / "usr/lib/x86_64-linux-gnu")


def test_a_tree_that_was_unpacked_once_needs_no_network_again(mirror: Mirror, cache: Path) -> None:
    tree = unpack(["hello", "libhello"], cache=cache)
    mirror.requested.clear()
    assert unpack(["libhello", "hello"], cache=cache) == tree
    assert mirror.requested == []


def test_two_processes_at_once_download_once(mirror: Mirror, cache: Path) -> None:
    mirror.serving_packages.clear()
    first = start_unpacking(cache, "hello")
    assert mirror.package_requested.wait(timeout=30)
    second = start_unpacking(cache, "hello")
    wait_until(lambda: waits_for_a_file_lock(second.pid), "the second process waits for the first")
    mirror.serving_packages.set()
    assert [first.wait(timeout=30), second.wait(timeout=30)] == [0, 0]
    assert mirror.requested.count("/./hello.deb") == 1


def test_a_download_that_was_killed_leaves_no_tree_and_the_next_one_succeeds(mirror: Mirror, cache: Path) -> None:
    mirror.serving_packages.clear()
    process = start_unpacking(cache, "hello")
    assert mirror.package_requested.wait(timeout=30)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    assert not (cache / "hello").exists()

    mirror.serving_packages.set()
    tree = unpack(["hello"], cache=cache)
    assert (tree / "usr/bin/hello").exists()
    assert {path.name for path in cache.iterdir()} == {"hello", "lock"}


def test_an_unknown_package_is_named_and_nothing_is_kept(mirror: Mirror, cache: Path) -> None:
    with pytest.raises(DebianError, match="Unable to locate package no-such-package"):
        unpack(["hello", "no-such-package"], cache=cache)
    assert {path.name for path in cache.iterdir()} == {"lock"}


def test_a_mirror_that_is_down_is_blamed_rather_than_the_package(mirror: Mirror, cache: Path) -> None:
    mirror.close()
    with pytest.raises(DebianError, match=r"(?s)apt-get.* update` failed:.*Connection refused"):
        unpack(["hello"], cache=cache)


def test_the_hooks_of_the_systems_apt_are_not_run(mirror: Mirror, cache: Path, apt_hook_ran: Path) -> None:
    unpack(["hello"], cache=cache)
    assert not apt_hook_ran.exists()


def test_a_machine_without_apt_is_told_so(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DebianError, match="apt-get is not on this machine"):
        unpack(["hello"], cache=cache)
