"""What should become of an upload that got stuck. Pure: a row and what the storage lists for it in, a decision out."""

from __future__ import annotations

from collections.abc import Sequence

from trueup import GiveUp, Stay, To

from .answers import Stored
from .content import Content
from .images import MAX_IMAGE_BYTES, Picture
from .rows import Facts, Upload

MAX_ATTEMPTS = 3
EXHAUSTED = "Max retries exceeded"


def prefix_of(wallpaper_id: str) -> str:
    return f"{wallpaper_id}/original."


def key_of(wallpaper_id: str, file_type: str) -> str:
    return f"{prefix_of(wallpaper_id)}{file_type}"


def absent(upload: Upload) -> To | Stay:
    """The storage has answered, and has no such object."""
    if upload.upload_attempts >= MAX_ATTEMPTS:
        return To("failed", processing_error=EXHAUSTED)
    return Stay(upload_attempts=upload.upload_attempts + 1)


def chosen(upload: Upload, found: Sequence[Stored]) -> Stored | None:
    """The object of this row; None when there is none. Raises GiveUp when there is no telling, or it cannot be a wallpaper."""
    named = [each for each in found if each.key == key_of(upload.id, upload.file_type or "")]
    if len(named or found) > 1:
        raise GiveUp(f"several objects: {', '.join(each.key for each in found)}"[:500])
    for stored in named or found:
        if not 0 < stored.size <= MAX_IMAGE_BYTES:
            raise GiveUp(f"{stored.key} has {stored.size:,} bytes")
        return stored
    return None


def facts_of(upload: Upload, stored: Stored, bucket: str, content: Content, picture: Picture) -> Facts:
    """What the object says about itself. Raises GiveUp when the row, or the object's own name, says otherwise."""
    facts = Facts(
        content_hash=content.sha256,
        file_type=picture.kind.file_type,
        mime_type=picture.kind.mime_type,
        file_size_bytes=content.size,
        width=picture.width,
        height=picture.height,
        storage_key=stored.key,
        storage_bucket=bucket,
        uploaded_at=upload.uploaded_at or stored.modified_at,
    )
    if stored.key != key_of(upload.id, facts.file_type):
        raise GiveUp(f"{stored.key} is a {facts.mime_type}")
    for name in ("content_hash", "file_type", "mime_type", "file_size_bytes", "width", "height", "storage_key"):
        expected, is_so = getattr(upload, name), getattr(facts, name)
        if expected is not None and expected != is_so:
            raise GiveUp(f"{name} of {stored.key} is {is_so}, and the row says {expected}"[:500])
    return facts
