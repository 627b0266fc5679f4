"""Small files that are what they say, and some that are not."""

from __future__ import annotations

import random
from functools import cache
from io import BytesIO

from PIL import Image

VIDEO = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + bytes(1000)


@cache
def picture(seed: int = 0, format: str = "JPEG", size: tuple[int, int] = (1280, 720)) -> bytes:
    """One picture per seed; no two seeds give the same."""
    color = tuple(random.Random(seed).randbytes(3))
    image = Image.new("RGB", size, color)
    image.putpixel((0, 0), (seed >> 16 & 255, seed >> 8 & 255, seed & 255))
    file = BytesIO()
    image.save(file, format, **({"comment": str(seed)} if format == "JPEG" else {}))
    return file.getvalue()


def animated(format: str) -> bytes:
    frames = [Image.new("RGB", (1280, 720), color) for color in ("red", "blue")]
    file = BytesIO()
    frames[0].save(file, format, save_all=True, append_images=frames[1:], duration=100)
    return file.getvalue()
