"""One request for a page: the person, the App, and the addresses on the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request

from trueup.app import App
from trueup.durations import duration_of
from trueup.errors import ConfigError, NotFound
from trueup.jobs.records import JobProgress
from trueup.web.dashboard.auth import Person
from trueup.web.dashboard.bulk import Bulk
from trueup.web.dashboard.formats import Redact, shown
from trueup.web.dashboard.source import Source

SHOWN, MAX_SHOWN = 100, 1_000  # rows of a list on a live page; the most that a person may ask for
MAX_VALUES = 50  # of one parameter
SLASH = "~"  # in our addresses, for a slash in a name: no name has one, and some proxies decode %2F


@dataclass(frozen=True, slots=True)
class Visit:
    """Parameters of the address that cannot be read raise ConfigError: a filter that is ignored would show, and act on, more than
    was asked for."""

    request: Request
    person: Person
    source: Source
    sources: Mapping[str, Source]
    bulk: Bulk
    redact: Redact | None
    now: datetime  # the database's

    @property
    def app(self) -> App:
        return self.source.app

    @property
    def base(self) -> str:
        return str(self.request.scope.get("root_path") or "")

    def url(self, *path: object, **query: Any) -> str:
        """An address of this App's pages: `url("jobs", 5)`, `url("jobs", state=["dead"])`."""
        return self.url_of(self.source.name, *path, **query)

    def url_of(self, source: str, *path: object, **query: Any) -> str:
        parts = "/".join(quote(str(part).replace("/", SLASH), safe="") for part in (source, *path))
        given = {key: value for key, value in query.items() if value not in (None, "", [], ())}
        return f"{self.base}/{parts}" + (f"?{urlencode(given, doseq=True)}" if given else "")

    def shown(self, kind: str, value: Any) -> Any:
        return shown(self.redact, kind, value)

    def progress(self, kind: str, stored: JobProgress | None) -> JobProgress | None:
        """A job's progress for display."""
        if stored is None or stored.note is None:
            return stored
        note = self.shown(kind, {"note": stored.note})
        return replace(stored, note=str(note.get("note", "")) if isinstance(note, Mapping) else str(note))

    def text(self, name: str, most: int = 200) -> str | None:
        return readable(name, self.request.query_params.get(name, ""), most) or None

    def texts(self, name: str) -> tuple[str, ...]:
        given = [readable(name, each, 200) for each in self.request.query_params.getlist(name)]
        if len(given) > MAX_VALUES:
            raise ConfigError(f"{name}: at most {MAX_VALUES} values")
        return tuple(each for each in given if each)

    def number(self, name: str, least: int, most: int) -> int | None:
        given = self.text(name)
        if given is None:
            return None
        if not (given.isascii() and given.isdigit() and len(given) < 20):
            raise ConfigError(f"{name} {given!r} is not a whole number")
        return max(least, min(most, int(given)))

    @property
    def most(self) -> int:
        """How many rows of each list this page shows."""
        return self.number("most", 1, MAX_SHOWN) or SHOWN

    def more_url(self) -> str | None:
        """The address of this page with the most rows; None when it already shows them."""
        if self.most >= MAX_SHOWN:
            return None
        return f"{self.base}{self.request.scope['path'].removeprefix(self.base)}?" + urlencode(
            [
                *((key, value) for key, value in self.request.query_params.multi_items() if key != "most"),
                ("most", MAX_SHOWN),
            ]
        )

    def duration(self, name: str) -> str | None:
        """A parameter such as 24h."""
        given = self.text(name, 20)
        if given is not None:
            duration_of(name, given)
        return given

    def part(self, name: str) -> str:
        """A part of the path. Raises NotFound if it cannot be a name."""
        value = str(self.request.path_params[name]).replace(SLASH, "/")
        if "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise NotFound("there is nothing of that name")
        return value


def readable(name: str, given: str, most: int) -> str:
    """The text without blanks around it. Raises ConfigError if PostgreSQL cannot store it, or it is too long."""
    text = given.strip()
    if clean(text, most) != text:
        raise ConfigError(f"{name}: at most {most} characters, and none that PostgreSQL cannot store")
    return text


def clean(text: str, most: int) -> str:
    return text.replace("\x00", "").encode("utf-8", "ignore").decode()[:most].strip()


def moment(text: str, name: str) -> datetime:
    """A time as forms and programs write it, in UTC unless it has an offset. Raises ConfigError."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigError(f"{name} {text[:40]!r} is not a time; write it like 2031-01-01T09:00Z") from None
