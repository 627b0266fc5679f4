"""What is a wallpaper, from the bytes alone."""

from __future__ import annotations

import struct
import zlib
from contextlib import nullcontext
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.wallpapers.images import JPEG, PNG, WEBP, Kind, Rejected, UnsupportedType, check_size, inspect, is_video
from tests.apps.wallpapers.pictures import VIDEO, animated, picture


@pytest.mark.parametrize("kind", [JPEG, PNG, WEBP], ids=lambda kind: kind.file_type)
def test_a_picture_is_recognised_by_its_bytes(kind: Kind) -> None:
    found = inspect(BytesIO(picture(1, kind.pillow, (1920, 1080))))
    assert (found.kind, found.width, found.height) == (kind, 1920, 1080)


@pytest.mark.parametrize(
    ("width", "height", "allowed"),
    [
        (1280, 720, True),
        (7680, 4320, True),
        (1279, 720, False),
        (1280, 719, False),
        (7681, 4320, False),
        (7680, 4321, False),
        (0, 0, False),
    ],
)
def test_the_limits_are_allowed_and_beyond_them_is_not(width: int, height: int, allowed: bool) -> None:
    with nullcontext() if allowed else pytest.raises(Rejected, match=f"{width}×{height}"):
        check_size(width, height)


@pytest.mark.parametrize(
    "head",
    [
        VIDEO,
        b"\x00\x00\x00\x14ftypqt  ",
        b"\x1a\x45\xdf\xa3webm",
        b"RIFF\x00\x00\x00\x00AVI LIST",
        b"\x00\x00\x01\xba....",
        b"FLV\x01....",
    ],
)
def test_a_video_is_told_that_it_is_one(head: bytes) -> None:
    with pytest.raises(UnsupportedType, match="videos are not accepted"):
        inspect(BytesIO(head))


@pytest.mark.parametrize("content", [b"", b"GIF89a" + bytes(100), b"%PDF-1.7", b"<svg/>", b"\x00\x00\x00\x1cftypheic"])
def test_other_types_are_not_supported_and_are_no_videos(content: bytes) -> None:
    with pytest.raises(UnsupportedType) as refused:
        inspect(BytesIO(content))
    assert "video" not in str(refused.value)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_picture_of_which_a_part_is_missing_is_refused(format: str) -> None:
    whole = picture(2, format)
    for length in (20, 70, len(whole) // 2, len(whole) * 9 // 10):
        with pytest.raises(Rejected):
            inspect(BytesIO(whole[:length]))


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
def test_an_animation_is_refused(format: str) -> None:
    with pytest.raises(Rejected, match="animated"):
        inspect(BytesIO(animated(format)))


def test_a_small_file_that_unfolds_into_gigabytes_is_refused_before_it_does() -> None:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    with pytest.raises(Rejected, match="100000×100000"):
        inspect(BytesIO(bomb))


@settings(deadline=None)  # the first image loads Pillow's formats; it is the only slow one
@given(
    st.binary(max_size=300), st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\x00\x00\x00\x00WEBP"])
)
def test_whatever_comes_is_refused_and_breaks_nothing(noise: bytes, head: bytes) -> None:
    with pytest.raises(Rejected):
        inspect(BytesIO(head + noise))
    assert is_video(noise) in (True, False)
