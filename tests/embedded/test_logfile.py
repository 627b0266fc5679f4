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


def test_a_log_that_grows_while_it_is_written_is_set_aside_and_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with logfile.open_to_append(path) as writer:
        writer.write(b"x" * (logfile.ROTATE_AT + 1))
        writer.flush()
        logfile.trim(path)
        assert path.stat().st_size == 0
        writer.write(b"more\n")
    assert path.read_bytes() == b"more\n"
    assert (tmp_path / "log.1").stat().st_size == logfile.ROTATE_AT + 1


def test_a_short_log_and_one_that_is_gone_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logfile.trim(path)
    path.write_bytes(b"x" * logfile.ROTATE_AT)
    logfile.trim(path)
    assert path.stat().st_size == logfile.ROTATE_AT
    assert [found.name for found in tmp_path.iterdir()] == ["log"]


def test_without_room_for_a_copy_the_log_is_cut_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (logfile.ROTATE_AT + 1))
    (tmp_path / "log.1").mkdir()  # nothing can be copied there
    logfile.trim(path)
    assert path.stat().st_size == 0


def test_the_end_of_a_log_that_was_trimmed_meanwhile_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("why it failed\n")
    assert logfile.tail(path, since=1_000_000) == "    why it failed"
