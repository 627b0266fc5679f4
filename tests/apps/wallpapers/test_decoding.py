"""Pictures that cost much more than their size: refused before they are decoded, or with the process that decodes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from io import BytesIO
from tempfile import SpooledTemporaryFile, TemporaryFile

import pytest
from PIL import Image

from apps.wallpapers.decoding import Decoder, Undecided
from apps.wallpapers.images import MAX_SCANS, Rejected, UnsupportedType, inspect
from tests.apps.wallpapers.pictures import picture

EMPTY_SCAN = b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00"  # of the AC coefficients of the first component, without data


def progressive(extra_scans: int) -> bytes:
    """A small file that asks the decoder to go over a large picture again and again."""
    file = BytesIO()
    Image.new("RGB", (3840, 2160), "navy").save(file, "JPEG", progressive=True)
    whole = file.getvalue()
    assert whole.endswith(b"\xff\xd9")
    return whole[:-2] + EMPTY_SCAN * extra_scans + b"\xff\xd9"


def test_progressive_pictures_are_read() -> None:
    assert inspect(BytesIO(progressive(0))).width == 3840


@pytest.mark.parametrize("extra", [MAX_SCANS, 1_000, 100_000])
def test_a_jpeg_of_very_many_scans_is_refused_before_it_is_decoded(extra: int) -> None:
    started = time.process_time()
    with pytest.raises(Rejected, match="scans"):
        inspect(BytesIO(progressive(extra)))
    assert time.process_time() - started < 2  # decoding costs milliseconds for each of them


def test_scans_of_pictures_inside_a_segment_do_not_count() -> None:
    whole = picture(1, "JPEG", (1920, 1080))
    thumbnail = EMPTY_SCAN * 1000
    segment = b"\xff\xe5" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    assert inspect(BytesIO(whole[:2] + segment + whole[2:])).width == 1920


@pytest.mark.parametrize("broken", [b"\xff\xda", b"\xff\xda\xff\xff", b"\xff\xe0\x00\x00" * 1000, b"\xff" * 100_000])
def test_broken_segments_end_the_counting(broken: bytes) -> None:
    with pytest.raises(Rejected):
        inspect(BytesIO(b"\xff\xd8" + broken))


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    decoder = Decoder()
    yield decoder
    decoder.kill()


@pytest.mark.asyncio
async def test_pictures_are_decoded_in_another_process_one_after_the_other(decoder: Decoder) -> None:
    with SpooledTemporaryFile[bytes](max_size=100 << 20) as file:
        file.write(picture(1, "PNG", (1920, 1080)))
        for _ in range(2):
            found = await decoder.look(file)
            assert (found.kind.file_type, found.width, found.height) == ("png", 1920, 1080)
        assert file.read(4) == b"\x89PNG"  # from the start, for whoever stores it next
        file.truncate(200)
        with pytest.raises(Rejected, match="cannot be read"):
            await decoder.look(file)
        file.truncate(0)
        with pytest.raises(UnsupportedType, match="empty"):
            await decoder.look(file)
    assert decoder.alive


@pytest.mark.asyncio
async def test_decoding_that_takes_too_long_is_over_when_that_is_told(decoder: Decoder) -> None:
    with TemporaryFile() as file:
        file.write(progressive(MAX_SCANS - 20))
        with pytest.raises(Undecided, match="took longer"):
            await decoder.look(file, within=0.001)
    assert not decoder.alive


@pytest.mark.asyncio
async def test_decoding_that_is_cancelled_is_over_then(decoder: Decoder) -> None:
    with TemporaryFile() as file:
        file.write(progressive(MAX_SCANS - 20))
        looking = asyncio.create_task(decoder.look(file))
        await asyncio.sleep(0)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
    assert not decoder.alive


@pytest.mark.asyncio
async def test_a_decoder_that_dies_costs_one_picture(decoder: Decoder) -> None:
    with TemporaryFile() as file:
        file.write(picture(1, "PNG", (1920, 1080)))
        await decoder.look(file)
        decoder.kill()
        with pytest.raises(Undecided, match="ended the decoder"):
            await decoder.look(file)
