"""Whether an answer is S3's, and to the request that was sent. Pure: an answer as botocore has read it in, what it says out.

botocore looks for the elements it knows and takes whatever else it is given for an answer without them: an empty body or a
well-formed page of a proxy reads like a bucket without objects. What S3 always says is therefore required here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_plus

from .content import Content

Answer = Mapping[str, Any]

NOT_DELETED = ("PreconditionFailed", "NoSuchKey")  # it has changed, or is gone: neither is an error of ours


class Unproven(Exception):
    """The answer lacks what S3 would have said, or says something else."""


@dataclass(frozen=True)
class Stored:
    key: str
    size: int
    etag: str
    modified_at: datetime


def listed(answer: Answer, bucket: str, prefix: str, start_after: str) -> list[Stored]:
    """The objects of a listing that names the bucket and the prefix it is about, and says whether it is complete."""
    _require(answer.get("Name") == bucket, f"it lists bucket {answer.get('Name')!r}")
    _require(_plain(answer.get("Prefix")) == _plain(prefix), f"it lists prefix {answer.get('Prefix')!r}")
    _require(isinstance(answer.get("IsTruncated"), bool), "it does not say whether it is truncated")
    _require(
        _plain(answer.get("StartAfter", start_after)) == _plain(start_after), "it is the answer to another request"
    )
    contents = answer.get("Contents", [])
    _require(answer.get("KeyCount", len(contents)) == len(contents), "it has fewer keys than it counts")
    _require(bool(contents) or not answer["IsTruncated"], "it is truncated, and empty")
    for each in contents:
        _require({"Key", "Size", "ETag", "LastModified"} <= each.keys(), "an object is incomplete")
        _require(each["Key"].startswith(prefix) and each["Key"] > start_after, f"it lists {each['Key']!r}")
    _require(len({each["Key"] for each in contents}) == len(contents), "it lists an object twice")
    return [_stored(each) for each in contents]


def _stored(listed: Answer) -> Stored:
    modified_at: datetime = listed["LastModified"]
    _require(modified_at.tzinfo is not None, f"{listed['Key']!r} has a time without a zone")
    _require(listed["Size"] >= 0 and bool(listed["ETag"]), f"{listed['Key']!r} has no size or no ETag")
    return Stored(listed["Key"], listed["Size"], listed["ETag"], modified_at.astimezone(UTC))


def is_absent(error: Answer, bucket: str, key: str) -> bool:
    """Whether a refusal says that there is no such object: with the status that says so, and about no other one."""
    told = error.get("Error", {})
    return (
        error.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404
        and told.get("Code") == "NoSuchKey"
        and _plain(told.get("Key", key)) == _plain(key)
        and told.get("BucketName", bucket) == bucket
    )


def check_put(answer: Answer, content: Content) -> None:
    """Stored is only what the storage names by its checksum, or by the ETag of these bytes."""
    _require(bool(answer.get("ETag")), "it has no ETag")
    if "ChecksumSHA256" in answer:
        _require(answer["ChecksumSHA256"] == content.checksum, "its checksum is of something else")
    else:
        _require(_unquoted(answer["ETag"]) == content.md5, "its ETag is of something else")


def check_got(answer: Answer, stored: Stored) -> None:
    """Before a byte is read: it is the object that was listed."""
    same = _unquoted(answer.get("ETag") or "") == _unquoted(stored.etag)
    _require(same, f"its ETag is {answer.get('ETag')}, and {stored.etag} was listed")
    _require(answer.get("ContentLength") == stored.size, f"it has {answer.get('ContentLength')} bytes")


def check_content(answer: Answer, stored: Stored, content: Content) -> None:
    """After the last one. botocore itself compares with a checksum, when the answer has one."""
    _require(content.size == stored.size, f"it has {content.size} bytes")
    if "ChecksumSHA256" in answer:
        _require(answer["ChecksumSHA256"] == content.checksum, "the bytes are not those of its checksum")
    elif re.fullmatch("[0-9a-f]{32}", _unquoted(stored.etag)) and "SSEKMSKeyId" not in answer:
        _require(content.md5 == _unquoted(stored.etag), "the bytes are not those of its ETag")


def removed(answer: Answer, asked: Set[str]) -> list[str]:
    """The keys that are gone. An answer has to account for every key that it was asked for, and for no other."""
    failed = {each.get("Key", ""): each.get("Code", "") for each in answer.get("Errors", [])}
    gone = [each.get("Key", "") for each in answer.get("Deleted", [])]
    _require(len(gone) + len(failed) == len(asked), "it accounts for a key twice, or for another one")
    _require({*gone, *failed} == asked, f"it accounts for {len({*gone, *failed} & asked)} of {len(asked)} keys")
    unexpected = [f"{code}: {key}" for key, code in failed.items() if code not in NOT_DELETED]
    _require(not unexpected, f"{unexpected[:1]} was not deleted")
    return gone


def _require(so: bool, otherwise: str) -> None:
    if not so:
        raise Unproven(otherwise)


def _plain(text: str | None) -> str | None:
    """Some storages encode what they repeat otherwise than botocore decodes it."""
    return None if text is None else unquote_plus(text)


def _unquoted(etag: str) -> str:
    return etag.strip('"').lower()
