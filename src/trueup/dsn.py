"""Connection strings: hiding their passwords, and refusing those that libpq would quote back at us.

`mask` works on any text (an exception, a log line) and errs on the side of hiding: where a text can be read in two ways it
hides more, and a host or a closing quote may be lost with the password. Apply it before a text is encoded as JSON.
"""

from __future__ import annotations

import re

from trueup.errors import ConfigError

MASK = "***"

# Every quantifier below is possessive or runs over characters that cannot start what follows it: no input backtracks.
# Blanks are ASCII blanks: a no-break space is part of a password to libpq, and so it is here.
_HIDDEN_KEY = r"(?:password|passwd|passphrase|secret)"
# A quote after backslashes closes nothing, however many they are: the text may be the repr() of a DSN, or a repr() of that.
_QUOTED = r"""(?P<opening>\\*+(?P<quote>["']))(?:(?!(?P=quote))[^\\\n]|\\++["']?+)*+"""
_FIELD = re.compile(  # "password": "…", as JSON and repr() write it
    rf"""({_HIDDEN_KEY}\\*+["']\s*+:\s*+)(?:b?+{_QUOTED}(?P<closing>(?P=quote))?+|[\w.+-]++)""",
    re.IGNORECASE | re.ASCII,
)
_PAIR = re.compile(  # of a URL's query, or else of a key/value DSN
    rf"(?<=[?&])((?:ssl)?+{_HIDDEN_KEY}=)[^\s&]*+"
    rf"""|({_HIDDEN_KEY}(?:\\*+["'])?+\s*+=\s*+)(?:{_QUOTED}(?:(?P=quote)\S*+)?+|(?:[^\s\\]|\\++\s?+)*+)""",
    re.IGNORECASE | re.ASCII,
)
_WORD = re.compile(r"\S++", re.ASCII)
# Only well-known schemes start a new URL in a list: anything else after a comma may be the middle of a password.
_NEXT_URL = re.compile(r"([,;])(?=(?:postgres|postgresql|redis|rediss|nats|tls|https?)://)", re.IGNORECASE)
_PORT = re.compile(r"[0-9]{1,5}(?![0-9A-Za-z_%])")

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*+)://(?P<body>.*+)", re.IGNORECASE | re.DOTALL)
_PAIRS = re.compile(  # as libpq reads them, but with a blank after each
    r"\s*+ (?: [a-z_]++ \s*+ = \s*+ (?: '(?:[^'\\]|\\.)*+' | (?!') (?:[^\s\\]|\\.)*+ ) (?: \s++ | $ ) )++",
    re.VERBOSE | re.ASCII,
)
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BAD_PERCENT = re.compile(r"%(?![0-9a-f]{2})|%00", re.IGNORECASE)


def mask(text: str) -> str:
    """The text with every password in it replaced by MASK: in URLs, in key/value DSNs, in JSON and repr() of fields.

    Users, hosts, ports and databases stay readable. Never raises, takes linear time, and changes nothing the second time.
    A raw blank ends a URL here, so the rest of a password that contains one is not found: `check_dsn` refuses those.
    """
    text = _mask_pairs(text)
    return _WORD.sub(lambda word: _mask_urls(word[0]), text) if "://" in text else text


def check_dsn(text: str) -> None:
    """Raise ConfigError unless this is a PostgreSQL URL or a key/value DSN whose password libpq reads whole.

    libpq's own errors quote the place where it stumbled, which is often a piece of the password; these never do.
    """
    if _UNUSABLE.search(text):
        raise ConfigError("has a line break, another control character or broken UTF-8 in it")
    url = _URL.fullmatch(text)
    if url is None:
        if _PAIRS.fullmatch(text) is None:
            raise ConfigError("is neither a PostgreSQL URL nor key=value pairs")
        return
    if url["scheme"] not in ("postgresql", "postgres"):
        raise ConfigError(f"is a {url['scheme']} URL, not a postgresql one")
    if " " in url["body"] or _BAD_PERCENT.search(url["body"]):
        raise ConfigError("has a blank or a % in it that must be percent-encoded (%20, %25)")
    if re.search("[@/]", url["body"].rpartition("@")[0]):
        raise ConfigError("has an @ or / in its user, password or options that must be percent-encoded (%40, %2F)")


class Secret:
    """A connection string that shows itself without its password. Only `reveal()` gives the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        if _URL.fullmatch(self._text):
            return _mask_url(_mask_pairs(self._text))
        # What cannot be read as a DSN may be the password itself.
        return mask(self._text) if _PAIRS.fullmatch(self._text) else MASK

    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


def _mask_pairs(text: str) -> str:
    text = _FIELD.sub(_mask_field, text)
    return _PAIR.sub(lambda pair: f"{pair[1] or pair[2]}{MASK}", text)


def _mask_field(field: re.Match[str]) -> str:
    """Keep the quotes, so that what was valid JSON still is."""
    key, opening, closing = field[1], field["opening"] or "", field["closing"] or ""
    return f"{key}{opening}{MASK}{closing}"


def _mask_urls(word: str) -> str:
    return "".join(_mask_url(url) for url in _NEXT_URL.split(word))


def _mask_url(url: str) -> str:
    scheme, found, body = url.partition("://")
    if not found:
        return url
    # The last @: those before it belong to a password that somebody forgot to encode.
    credentials, at, hosts = body.rpartition("@")
    if not at:
        return f"{scheme}://{_mask_cut_off(body)}"
    user, colon, _ = credentials.partition(":")
    if colon:
        return f"{scheme}://{user}:{MASK}@{hosts}"
    # NATS reads a lone user as a token.
    return f"{scheme}://{MASK}@{hosts}" if scheme.lower().endswith("nats") else url


def _mask_cut_off(body: str) -> str:
    """Hide what follows "user:" when the text was cut before its @; "host:port" stays."""
    host, _, rest = body.partition(":")
    is_port = not rest or _PORT.match(rest) or "/" in host or host.startswith("[")
    return body if is_port else f"{host}:{MASK}"
