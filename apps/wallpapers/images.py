"""What a file is, from its bytes alone: never from its name, nor from what a client says about it.

One picture, as JPEG, PNG or WebP, within the limits. It is decoded in full, so that one that breaks off is found out; its
dimensions are looked at before that, so that a small file cannot unfold into gigabytes. Animations are refused: a wallpaper is
one picture. Videos are told apart from other things, because they are to come one day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import IO

from PIL import Image

MAX_IMAGE_BYTES = 50 << 20
MAX_VIDEO_BYTES = 200 << 20  # reserved: videos are refused as yet
HEAD = 64  # bytes; by these a file is recognised
SMALLEST = (1280, 720)
LARGEST = (7680, 4320)

MAX_SCANS = 64  # encoders write about ten

# A marker: 0xFF and a byte that is neither stuffing, a restart, nor more filling.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_WITHOUT_LENGTH = frozenset({0x01, 0xD8})

# Pillow warns of large images by default. Our limits are tighter, and asked before anything is decoded.
Image.MAX_IMAGE_PIXELS = None


class Rejected(ValueError):
    """Not a wallpaper; the text is for the client that sent it."""


class UnsupportedType(Rejected):
    """Not a JPEG, PNG or WebP file at all."""


@dataclass(frozen=True)
class Kind:
    file_type: str  # also the extension of the object's key
    mime_type: str
    pillow: str


JPEG = Kind("jpg", "image/jpeg", "JPEG")
PNG = Kind("png", "image/png", "PNG")
WEBP = Kind("webp", "image/webp", "WEBP")
KINDS = {kind.file_type: kind for kind in (JPEG, PNG, WEBP)}


@dataclass(frozen=True)
class Picture:
    kind: Kind
    width: int
    height: int


def inspect(file: IO[bytes]) -> Picture:
    """Raises Rejected, saying why. Takes as long as decoding does: `decoding` does it in a process of its own."""
    file.seek(0)
    kind = sniff(file.read(HEAD))
    file.seek(0)
    if kind is JPEG:
        check_scans(file.read())
        file.seek(0)
    try:
        with Image.open(file, formats=[kind.pillow]) as image:
            width, height = image.size
            check_size(width, height)
            # Not asked of a JPEG: phones put a second picture behind the first one.
            if kind is not JPEG and getattr(image, "is_animated", False):
                raise Rejected("the image is animated; a wallpaper is one picture")
            image.load()
    except Rejected:
        raise
    except Exception as error:  # whatever a broken file makes a decoder say
        raise Rejected(f"the {kind.pillow} image cannot be read: {error}"[:200]) from None
    finally:
        file.seek(0)
    return Picture(kind, width, height)


def check_scans(jpeg: bytes) -> None:
    """Each scan of a progressive JPEG is a pass over the whole picture, and may be ten bytes long in the file."""
    scans, at = 0, 2
    while (marker := _MARKER.search(jpeg, at)) is not None:
        code, at = marker[0][-1], marker.end()
        if code == _END_OF_IMAGE:
            return
        if code == _START_OF_SCAN:
            scans += 1
            if scans > MAX_SCANS:
                raise Rejected(f"the JPEG image has more than {MAX_SCANS} scans")
        if code not in _WITHOUT_LENGTH:
            at += max(2, int.from_bytes(jpeg[at : at + 2], "big"))


def check_size(width: int, height: int) -> None:
    if not (SMALLEST[0] <= width <= LARGEST[0] and SMALLEST[1] <= height <= LARGEST[1]):
        limits = f"from {SMALLEST[0]}×{SMALLEST[1]} to {LARGEST[0]}×{LARGEST[1]}"
        raise Rejected(f"the image is {width}×{height} pixels; {limits} is allowed")


def sniff(head: bytes) -> Kind:
    """By the first bytes. Raises UnsupportedType."""
    if not head:
        raise UnsupportedType("the file is empty")
    if head.startswith(b"\xff\xd8\xff"):
        return JPEG
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return WEBP
    if is_video(head):
        raise UnsupportedType("videos are not accepted; send a JPEG, PNG or WebP image")
    raise UnsupportedType("not a JPEG, PNG or WebP image")


def is_video(head: bytes) -> bool:
    if head[4:8] == b"ftyp":  # MP4, QuickTime, 3GP; pictures come in the same box, under brands of their own
        return head[8:12] not in (b"avif", b"avis", b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1")
    return (head.startswith(b"RIFF") and head[8:12] == b"AVI ") or head.startswith(
        (
            b"\x1a\x45\xdf\xa3",  # Matroska, WebM
            b"\x00\x00\x01\xba",  # MPEG
            b"\x00\x00\x01\xb3",
            b"OggS",
            b"FLV\x01",
            b"\x30\x26\xb2\x75\x8e\x66\xcf\x11",  # ASF, WMV
        )
    )
