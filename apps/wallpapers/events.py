"""What is published about a wallpaper. Pure: the same row gives the same message, under the same id, for ever."""

from __future__ import annotations

from typing import Any

from .rows import Facts, Upload

SUBJECTS = ["wallpapers.>"]
UPLOADED = "wallpapers.uploaded"


def message_id(wallpaper_id: str) -> str:
    """The Nats-Msg-Id. The stream drops a second one, and so can a consumer that reads it much later."""
    return f"{wallpaper_id}.uploaded"


def uploaded(upload: Upload, facts: Facts) -> dict[str, Any]:
    """Takes facts that are complete: there is no event with nulls in it. A name that was not given is omitted."""
    named = {} if upload.original_filename is None else {"original_filename": upload.original_filename}
    return {
        "event": "wallpaper.uploaded",
        "wallpaper_id": upload.id,
        "user_id": upload.user_id,
        **named,
        **facts.columns(),
        "uploaded_at": facts.uploaded_at.isoformat(),
    }
