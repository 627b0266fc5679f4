from __future__ import annotations

from pathlib import Path

from trueup.embedded import logfile


def test_only_what_the_last_start_wrote_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with logfile.open_to_append(path) as log:
        log.write(b"an old failure\n")
    with logfile.open_to_append(path) as log:
        start = log.tell()
        log.write(b"a new failure\n")
    assert logfile.tail(path, start) == "    a new failure"


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(f"line {number}" for number in range(100_000)))
    lines = logfile.tail(path).splitlines()
    assert len(lines) == 20
    assert lines[-1] == "    line 99999"


def test_a_log_that_was_never_written_is_empty(tmp_path: Path) -> None:
    assert logfile.tail(tmp_path / "none") == ""


def test_an_overgrown_log_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (logfile.ROTATE_AT + 1))
    logfile.open_to_append(path).close()
    assert path.stat().st_size == 0
    assert (tmp_path / "log.1").stat().st_size == logfile.ROTATE_AT + 1
