"""What should become of a stuck upload; no database, no storage."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from apps.wallpapers.answers import Stored
from apps.wallpapers.content import Content
from apps.wallpapers.events import message_id, uploaded
from apps.wallpapers.ids import is_id, new_id
from apps.wallpapers.images import JPEG, MAX_IMAGE_BYTES, PNG, Picture
from apps.wallpapers.recovering import absent, chosen, facts_of
from apps.wallpapers.rows import Facts, Upload
from trueup import GiveUp, Stay, To

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOTHING = dict.fromkeys(Facts.__dataclass_fields__)
ROW = Upload(id="wlpr_a", user_id="ada", upload_attempts=0, original_filename=None, **NOTHING)  # type: ignore[arg-type]
JPG = Stored("wlpr_a/original.jpg", 5, '"e"', NOON)
PICTURE = Picture(JPEG, 1920, 1080)
AN_ID = "wlpr_" + "0" * 26
HASH = hashlib.sha256(b"bytes").hexdigest()


def content() -> Content:
    return Content(cast(Any, None), 5, hashlib.sha256(b"bytes").digest(), "")  # nobody reads it


@pytest.mark.parametrize(
    ("attempts", "outcome"),
    [
        (0, Stay(upload_attempts=1)),
        (1, Stay(upload_attempts=2)),
        (2, Stay(upload_attempts=3)),
        (3, To("failed", processing_error="Max retries exceeded")),
        (4, To("failed", processing_error="Max retries exceeded")),
    ],
)
def test_an_absent_object_is_looked_for_three_times_more(attempts: int, outcome: To | Stay) -> None:
    assert absent(replace(ROW, upload_attempts=attempts)) == outcome


def test_the_object_of_a_row_is_the_one_there_is_or_the_one_it_names() -> None:
    png = replace(JPG, key="wlpr_a/original.png")
    assert chosen(ROW, []) is None
    assert chosen(ROW, [JPG]) == JPG
    assert chosen(replace(ROW, file_type="png"), [JPG, png]) == png
    with pytest.raises(GiveUp, match="several objects"):
        chosen(ROW, [JPG, png])


@pytest.mark.parametrize("size", [0, MAX_IMAGE_BYTES + 1])
def test_an_object_that_cannot_be_a_wallpaper_is_not_even_fetched(size: int) -> None:
    with pytest.raises(GiveUp, match="bytes"):
        chosen(ROW, [replace(JPG, size=size)])


def test_what_the_row_does_not_know_comes_from_the_object() -> None:
    facts = facts_of(ROW, JPG, "wallpapers", content(), PICTURE)
    assert facts == Facts(HASH, "jpg", "image/jpeg", 5, 1920, 1080, JPG.key, "wallpapers", NOON)
    assert facts_of(replace(ROW, **facts.columns()), JPG, "wallpapers", content(), PICTURE) == facts


@pytest.mark.parametrize(
    "differs",
    [
        {"content_hash": "0" * 64},
        {"file_type": "png"},
        {"mime_type": "image/png"},
        {"file_size_bytes": 6},
        {"width": 1921},
        {"height": 1081},
        {"storage_key": "wlpr_a/original.png"},
    ],
    ids=lambda differs: next(iter(differs)),
)
def test_what_the_row_knows_must_be_so(differs: dict[str, Any]) -> None:
    with pytest.raises(GiveUp, match=next(iter(differs))):
        facts_of(replace(ROW, **differs), JPG, "wallpapers", content(), PICTURE)


def test_an_object_must_be_what_its_name_says() -> None:
    with pytest.raises(GiveUp, match="is a image/png"):
        facts_of(ROW, JPG, "wallpapers", content(), Picture(PNG, 1920, 1080))


def test_a_row_is_described_when_nothing_is_missing() -> None:
    facts = facts_of(ROW, JPG, "wallpapers", content(), PICTURE)
    complete = replace(ROW, **facts.columns())
    assert complete.facts == facts
    for name in Facts.__dataclass_fields__:
        assert replace(complete, **{name: None}).facts is None


def test_the_same_row_gives_the_same_message_under_the_same_id() -> None:
    facts = facts_of(ROW, JPG, "wallpapers", content(), PICTURE)
    assert uploaded(ROW, facts) == uploaded(replace(ROW, upload_attempts=3), facts)
    assert uploaded(ROW, facts)["uploaded_at"] == "2026-06-01T12:00:00+00:00"
    assert message_id(ROW.id) == "wlpr_a.uploaded"


def test_ids_are_recognised_sort_by_age_and_never_repeat() -> None:
    ids = [new_id() for _ in range(1000)]
    assert all(map(is_id, ids))
    assert len(set(ids)) == 1000
    assert ids[0][:15] <= ids[-1][:15]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "wlpr_",
        "wlpr_1",
        "WLPR_" + "0" * 26,
        f"{AN_ID}\n",
        f"{AN_ID}/../x",
        "wlpr_" + "u" * 26,
        "wlpr_" + "٣" * 26,
    ],
)
def test_what_is_no_id_is_not_taken_for_one(text: str) -> None:
    assert not is_id(text)
