"""A proxy in front of a real S3 that answers some requests itself, mostly with a status of 2xx: the storage never sees those."""

from __future__ import annotations

import gzip
import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from apps.servers.server import LOOPBACK

OPERATIONS = ("list", "get", "put", "delete")


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        query = urlsplit(self.path).query
        if self.method == "GET":
            return "list" if "list-type" in query else "get"
        return "put" if self.method == "PUT" else "delete"

    @property
    def prefix(self) -> str:
        return self._given("prefix")

    @property
    def start_after(self) -> str:
        return self._given("start-after")

    def _given(self, name: str) -> str:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True).get(name, [""])[0]


@dataclass(frozen=True)
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


Ask = Callable[[], Answer]  # the real storage
Lie = Callable[[Request, Ask], Answer]


def page(kind: str, body: str) -> Lie:
    return lambda request, ask: Answer(headers={"Content-Type": kind}, body=body.encode())


def truncated(request: Request, ask: Ask) -> Answer:
    """What comes of a real answer is cut off, and its length says so: the connection is fine."""
    real = ask()
    return replace(real, body=real.body[: len(real.body) // 2], headers=_without(real, "etag", "x-amz-checksum-sha256"))


def another_bucket(request: Request, ask: Ask) -> Answer:
    return _listing("another-bucket", request.prefix)


def another_prefix(request: Request, ask: Ask) -> Answer:
    return _listing("wallpapers", "wlpr_somebody/else")


def out_of_a_cache(request: Request, ask: Ask) -> Answer:
    """The right bucket and prefix, from before the object was there."""
    return _listing("wallpapers", request.prefix, "<StartAfter>!earlier</StartAfter>")


def half_a_listing(request: Request, ask: Ask) -> Answer:
    """Without a word on whether it is all."""
    body = f"<ListBucketResult><Name>wallpapers</Name><Prefix>{request.prefix}</Prefix></ListBucketResult>"
    return Answer(body=body.encode())


def wrong_etag(request: Request, ask: Ask) -> Answer:
    """Nothing is stored or deleted; what is said to be there is something else."""
    other = "0" * 32
    if request.operation in ("put", "delete"):
        return Answer(headers={"ETag": f'"{other}"'})
    real = ask()
    headers = _without(real, "etag", "x-amz-checksum-sha256")
    body = _between(real.body, b"<ETag>", b"</ETag>", other.encode()) if request.operation == "list" else real.body
    return replace(real, headers={**headers, "ETag": f'"{other}"'}, body=body)


def other_bytes(request: Request, ask: Ask) -> Answer:
    """As many as there should be, under the right ETag."""
    if request.operation in ("put", "delete"):
        return Answer(headers={"ETag": '"5d41402abc4b2a76b9719d911017c592"'})
    real = ask()
    return replace(real, headers=_without(real, "x-amz-checksum-sha256"), body=b"x" * len(real.body))


def older(request: Request, ask: Ask) -> Answer:
    """What was there before: whole, and under the ETag that it had."""
    body = b"older"
    if request.operation == "list":
        return wrong_etag(request, ask)
    return Answer(headers={"ETag": f'"{md5(body, usedforsecurity=False).hexdigest()}"'}, body=body)


def bomb(request: Request, ask: Ask) -> Answer:
    """Small as it comes, and large when it is unpacked."""
    real = ask()
    return replace(real, headers={**real.headers, "Content-Encoding": "gzip"}, body=gzip.compress(bytes(2**24)))


def entities(request: Request, ask: Ask) -> Answer:
    """Small as it comes, and large when it is parsed: each entity is ten of the one before."""
    names = [f"e{n}" for n in range(10)]
    made = "".join(f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in pairwise(names))
    text = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "aaaaaaaaaa">{made}]><ListBucketResult><Name>&e9;</Name></ListBucketResult>'
    return Answer(headers={"Content-Type": "application/xml"}, body=text.encode())


LIES: dict[str, Lie] = {
    "maintenance page": page("text/html", "<!DOCTYPE html><html><body>Back soon<br></body></html>"),
    "well-formed page": page("application/xhtml+xml", "<html><head><title>Soon</title></head><body>Back</body></html>"),
    "empty body": lambda request, ask: Answer(),
    "no content": lambda request, ask: Answer(204),
    "truncated": truncated,
    "another bucket": another_bucket,
    "another prefix": another_prefix,
    "out of a cache": out_of_a_cache,
    "half a listing": half_a_listing,
    "JSON": page("application/json", '{"status": "ok", "objects": []}'),
    "wrong ETag": wrong_etag,
    "other bytes": other_bytes,
    "error inside": page("application/xml", "<Error><Code>InternalError</Code><Message>Try again.</Message></Error>"),
    "older version": older,
    "bomb": bomb,
    "entities": entities,
}


def left_out(request: Request, ask: Ask) -> Answer:
    """A listing as S3 makes it, but for the object, which is missing from its index."""
    return _listing("wallpapers", request.prefix, f"<StartAfter>{request.start_after}</StartAfter>")


def listing_of(entry: str, keys: int = 1) -> Lie:
    """A listing as S3 makes it, with these objects."""
    return lambda request, ask: _listing(
        "wallpapers", request.prefix, f"<StartAfter>{request.start_after}</StartAfter>{entry}", keys=keys
    )


def entry(
    key: str = "wlpr_a/original.jpg",
    size: str = "5",
    etag: str = "5d41402abc4b2a76b9719d911017c592",
    modified: str = "2020-01-01T00:00:00.000Z",
) -> str:
    """An object in a listing."""
    told = f"<Key>{key}</Key><Size>{size}</Size><ETag>{etag}</ETag><LastModified>{modified}</LastModified>"
    return f"<Contents>{told}</Contents>"


def not_there(status: int = 404, also: str = "") -> Lie:
    """An error that names no such key."""
    body = f"<Error><Code>NoSuchKey</Code><Message>It is not there.</Message>{also}</Error>"
    return lambda request, ask: Answer(status, {"Content-Type": "application/xml"}, body.encode())


def same_page(request: Request, ask: Ask) -> Answer:
    """However far one has come: where to begin is repeated, and not heeded."""
    return listing_of(entry())(request, ask)


def redirect(status: int, location: str) -> Lie:
    headers = {"Location": location, "x-amz-bucket-region": "eu-west-7"}
    return lambda request, ask: Answer(status, headers)


class Liar:
    """Honest, until it is `telling` a lie."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._lie: Lie | None = None
        self._about: tuple[str, ...] = ()
        self.told = 0

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}"

    @contextmanager
    def telling(self, lie: Lie, *about: str) -> Iterator[None]:
        """To these operations; to all, unless they are named."""
        self._lie, self._about = lie, about or OPERATIONS
        try:
            yield
        finally:
            self._lie = None

    def answer(self, request: Request) -> Answer:
        lie = self._lie
        if lie is None or request.operation not in self._about:
            return self._ask(request)
        self.told += 1
        return lie(request, lambda: self._ask(request))

    def _ask(self, request: Request) -> Answer:
        """With the very headers of the request: they are signed."""
        upstream = http.client.HTTPConnection(str(self._upstream.hostname), self._upstream.port, timeout=10)
        try:
            upstream.request(request.method, request.path, request.body, request.headers)
            answer = upstream.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            upstream.close()

    def __enter__(self) -> Self:
        liar = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
                answer = liar.answer(Request(self.command, self.path, headers, body))
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                        self.send_header(name, value)
                if answer.status != 204:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_PUT = do_POST = answer  # noqa: N815 - as it looks them up

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """A client that hung up."""

        self._server = Quiet((LOOPBACK, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


def _listing(bucket: str, prefix: str, also: str = "", *, keys: int = 0) -> Answer:
    body = (
        f"<ListBucketResult><Name>{bucket}</Name><Prefix>{prefix}</Prefix><KeyCount>{keys}</KeyCount><MaxKeys>1000</MaxKeys>"
        f"<IsTruncated>false</IsTruncated>{also}</ListBucketResult>"
    )
    return Answer(headers={"Content-Type": "application/xml"}, body=body.encode())


def _without(answer: Answer, *names: str) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.lower() not in names}


def _between(text: bytes, before: bytes, after: bytes, new: bytes) -> bytes:
    head, *parts = text.split(before)
    return head + b"".join(before + b"&#34;" + new + b"&#34;" + after + part.split(after, 1)[1] for part in parts)
