"""Secrets that are known by the name in front of them, however name and value are written.

A regular expression finds a name and a separator; from there the value is consumed once, by the rules of the notation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trueup.masking.mark import MASK

# Blanks are ASCII blanks throughout: a no-break space is part of a password to libpq, and so it is here.
_FLAGS = re.IGNORECASE | re.ASCII

# What a name may end with. Each starts with a plain letter, and what must stand before it is looked at afterwards: that is
# several times as fast as one expression for all of it.
_ENDING = (
    r"(?:pass(?:wor[dt]s?+|wd|phrase|code|file)?+|kennwort|pwd?+|psk|otp|secrets?+|token|credentials?+|identified\s++(?:with\s++\S{1,60}+\s++)?+by"
    r"|sess(?:ion)?id|_session|connect\.sid|code(?:_?verifier)?+|assertion|saml(?:request|response)|cv[cv]|authorization|cookie|signature|sig|key(?:_?base|-data)?+)(?:_?hash|[0-9])?+"
)
_BEFORE = {
    "pass": re.compile(r"(?:\A|[^a-z]|(?:db|my|pg|user))pass\Z"),
    "pwd": re.compile(r"(?:\A|[^a-z]|(?:db|my|pg|user))pwd\Z"),
    "pw": re.compile(r"(?:\A|[^a-z]|(?:db|my|pg|user|bind))pw\Z"),
    "code": re.compile(r"(?:(?:device|recovery|backup|verification)_?|[?&]|auth(?:orization)?_?)code\Z"),
    "assertion": re.compile(r"(?:[?&]|client_)assertion\Z"),
    "cvc": re.compile(r"(?:\A|[^a-z])cvc\Z"),
    "cvv": re.compile(r"(?:\A|[^a-z])cvv\Z"),
    "psk": re.compile(r"(?:\A|[^a-z])psk\Z"),
    "otp": re.compile(r"(?:\A|[^a-z])t?otp\Z"),
    "key": re.compile(
        r"(?:api|access|secret|private|signing|encryption|account|auth|master|subscription|preshared|functions?|client)"
        r"[_.\- ]?key(?:_?base|-data)?\Z"
    ),
    "signature": re.compile(r"(?:x-(?:amz|goog)-|shared_?access_?|[?&])signature\Z"),
    "sig": re.compile(r"[?&]sig\Z"),
}
_NAMED_SOURCE = rf"""(?P<name>{_ENDING})(?P<quote>\\*+["'])?+(?:
      (?P<value>\s*+,?\s*+\\*+["']?+value\\*+["']?+\s*+[:=]\s*+)         # {{"name": "api_key", "value": "…"}}, and in HTML
    | (?P<annotated>\s*+:[\ ]*+(?:typing\.)?(?:str|bytes|secretstr|optional|final)\b[\w.\[\],|\ ]{{0,40}}=\s*+(?=[a-z]?["']))
    | (?P<assigned>\]?+\s*+(?:=>|:=|={{1,3}})\s*+)
    | (?P<call>\(\s*+(?=[a-z]?\\*+["']))
    | (?P<part>\r?\n\r?\n)
    | (?P<colon>(?:\ (?:provided|given|used))?\s*+:[\ \t]*+(?:\r?\n\s*+(?=["']))?+)
    | (?P<comma>\s*+,\s*+(?=[a-z]?\\*+["']))
    | (?P<tag>(?:</key|(?:\s++[\w:-]{{1,40}}+=["'][^<>"'\n]{{0,100}}+["'])++)?+>(?:\s*+<string>)?+)
    | (?P<blank>\s++(?=\S))
    )"""
_NAMED = re.compile(_NAMED_SOURCE, re.ASCII | re.VERBOSE)  # for a text in lower case
_NAMED_IN_ANY_CASE = re.compile(_NAMED_SOURCE, _FLAGS | re.VERBOSE)
_AT_THE_END = re.compile(rf"(?P<name>{_ENDING})\Z", re.ASCII)
# Such a name has other meanings, too: its value is a secret only if it looks like a token.
_IF_TOKEN = re.compile(r"code|_session|assertion|saml(?:request|response)", _FLAGS)
_TOKEN = re.compile(r"[\"']?[\s:=]*+[\"']?(?=[\w.~+/%-]*?[0-9])(?=[\w.~+/%-]*?[A-Za-z])[\w.~+/%-]{16}", re.ASCII)
_LONG_TOKEN = re.compile(r"(?=[A-Za-z+_=-]*+[0-9])[A-Za-z0-9+_=-]{24,}+(?![^\s.,;])", re.ASCII)
_PASSWORD = re.compile(r"pass(?:word|wd|phrase)|identified\s.*by", _FLAGS | re.DOTALL)
_OF_ORACLE = re.compile(r"IDENTIFIED\s++BY\s++(?![\"'])")
_SQL = re.compile(
    r"(\bset\s++password\s++for\s++[^\s=]{1,200}+\s*+=\s*+'|\bcrypt\(\s*+[en]?'|\bpgp_sym_(?:en|de)crypt(?:_bytea)?\([^(),]{1,200}+,\s*+[en]?')"
    r"(?:[^'\n]|'')*+",
    _FLAGS,
)
_HEADER = re.compile(r"authorization|cookie", _FLAGS)
_SCHEME = re.compile(r"(?P<one>bearer|basic|token|apikey|negotiate)[ \t]++|(?:digest|hawk|aws4-[\w-]++)[ \t]++", _FLAGS)
_OPENING = re.compile(r"[a-z]{0,2}(?P<slashes>\\*+)(?P<quote>[\"'])", _FLAGS)
_CLOSING = {quote: re.compile(rf"(?<!\\)(\\*+)([{quote}\n])") for quote in "\"'"}
_DOLLARS = re.compile(r"\$\w{0,60}\$", re.ASCII)
_NEXT_ITEM = re.compile(r"\\*+[\"']\s*+,\s*+(?=[a-z]?\\*+[\"'])", _FLAGS)
_BRACKET = re.compile(r"[\[(]\s*+(?=[a-z]?\\*+[\"'])", _FLAGS)
_BLOCK = re.compile(r"(?:[!&][\w!/:.-]++[ \t]++)*+(?:[|>][0-9+-]{0,2}[ \t]*+)?\r?\n(?=[ \t])")
_OPENS_TAG = re.compile(r"</?(?:[\w-]{1,40}:)?\Z|<key>\Z", re.ASCII)

_WORD = re.compile(r"(?:[^\s\\]|\\++[\"']?+\s?+)*+", re.ASCII)
_PLAIN_WORD = re.compile(r"(?:[^\s\\]|\\(?![nr]))*+", re.ASCII)
_NUMBER = re.compile(r"[\w.+-]*+", re.ASCII)
_OF_A_QUERY = re.compile(r"[^\s&\"<>]*+", re.ASCII)
_OF_A_TAG = re.compile(r"[^<\n]*+")
_LINE = re.compile(r"(?:[^\r\n\\]|\\(?![nr]))*+")
_CLOSERS = "\"')]},;>"
_IDENTIFIER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.[]")
_MAX_IDENTIFIER = 80
_LINE_START = re.compile(r"[ \t]*+(?:-[ \t]++)?(?:export[ \t]++)?[\"']?\Z")

_NOT_SECRET = re.compile(r"(?:true|false|null|none|nil|undefined)(?![^\s,;)\]}\"'&])", _FLAGS)
_DIRECTORY = re.compile(r"(?:OLD)?PWD=/")  # a shell's working directory
# What follows "password:" in a sentence about a password, and in a signature.
_PROSE_WORDS = (
    "a an and any are at authentication bool bucket bytes can cannot does expected expired extra field float for given has have in "
    "incorrect input int invalid is less list may mismatch missing more must no not object of ok only optional or required "
    "secretstr should str string text than that the this to too type unauthorized unexpected unknown unset value was were which "
    "with wrong"
)
_PROSE = re.compile(rf"(?:{'|'.join(_PROSE_WORDS.split())})(?![\w@:=/+-])", _FLAGS)
_PROSE_INSIDE = re.compile(rf"[ \t](?:{'|'.join(_PROSE_WORDS.split())})(?![\w@:=/+-])", _FLAGS)

_NETRC = re.compile(r"\b(login[ \t]++\S++\s++(?:account[ \t]++\S++\s++)?password[ \t]++)\S++", _FLAGS)
_SERVER_OPTION = re.compile(r"(\b(?:requirepass|masterauth|bindpw)[ \t]++)\S++", _FLAGS)
_ORACLE = re.compile(r"(\b(?:sqlplus[ ]|jdbc:oracle:\w++:)\w++/|(?<![\w/.])\w{1,30}+/(?=[^\s@/]++@//))[^\s@]++", _FLAGS)
_CURL_USER = re.compile(
    r"((?<![\w-])(?:-u|--user|--proxy-user)(?:[ =]|(?=[\"'])|(?<=-u))[\"']?(?!\d++:\d++(?!\S))[^\s:\"']++:)[^\s\"']++",
    _FLAGS,
)
_REQUESTS_AUTH = re.compile(
    r"((?:(?<![a-z])auth\s{0,4}=\s{0,4}[\[(]|\bhttp(?:basic|digest|proxy)auth\()\s{0,4}[\"'][^\"'\n]*+[\"']\s{0,4},\s{0,4}[\"'])[^\"'\n]*+",
    _FLAGS,
)

# One of them is in every text that `_NAMED` finds something in.
_HINTS = (
    "pass",
    "pw",
    "kennwort",
    "psk",
    "otp",
    "sessid",
    "sessionid",
    "connect.sid",
    "secret",
    "token",
    "key",
    "credential",
    "authorization",
    "cookie",
    "signature",
    "sig=",
    "identified",
    "_session",
    "code",
    "assertion",
    "samlre",
    "cvv",
    "cvc",
)


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret."""
    name = name[-_MAX_IDENTIFIER:].lower()
    found = _AT_THE_END.search(name)
    return found is not None and found["name"] != "_session" and _is_secret(name, found)


def _is_secret(text: str, found: re.Match[str]) -> bool:
    """Whether what stands before it makes this the name of a secret."""
    ending = found["name"].lower().rstrip("0123456789").removesuffix("hash").rstrip("_")
    before = _BEFORE.get("key" if ending.startswith("key") else ending)
    if before is None:
        return True
    start = found.start()
    return before.search(text[max(0, start - 20) : start + len(ending)].lower()) is not None


def mask_named(text: str) -> str:
    lowered = text.lower()
    if any(hint in lowered for hint in _HINTS):
        text = _Masking(text, lowered).run()
    if "login" in lowered:
        text = _NETRC.sub(rf"\g<1>{MASK}", text)
    if "-u" in lowered:
        text = _CURL_USER.sub(rf"\g<1>{MASK}", text)
    if "oracle" in lowered or "sqlplus" in lowered or "@//" in lowered:
        text = _ORACLE.sub(rf"\g<1>{MASK}", text)
    if any(option in lowered for option in ("requirepass", "masterauth", "bindpw")):
        text = _SERVER_OPTION.sub(rf"\g<1>{MASK}", text)
    if "set password" in lowered or "crypt(" in lowered or "crypt_bytea(" in lowered:
        text = _SQL.sub(rf"\g<1>{MASK}", text)
    if "auth" in lowered:
        text = _REQUESTS_AUTH.sub(rf"\g<1>{MASK}", text)
    return text


@dataclass(slots=True)
class _Name:
    """A name that was found: where it starts and ends, and where its value starts."""

    whole: str
    found: re.Match[str]
    start: int
    value: int

    @property
    def text(self) -> str:
        return self.whole[self.start : self.found.end("name")]

    @property
    def before(self) -> str:
        return self.whole[max(0, self.start - 1) : self.start]


class _Masking:
    """One pass over a text. `_done` is how far it is copied to `_parts`; it only ever moves forward."""

    def __init__(self, text: str, lowered: str) -> None:
        self._text = text
        # A few letters become two in lower case; then positions in the two texts differ.
        self._searched, self._pattern = (lowered, _NAMED) if len(lowered) == len(text) else (text, _NAMED_IN_ANY_CASE)
        self._parts: list[str] = []
        self._done = 0

    def run(self) -> str:
        at = 0
        while (found := self._pattern.search(self._searched, at)) is not None:
            at = found.end("name")
            if not _is_secret(self._searched, found):
                continue
            if _IF_TOKEN.fullmatch(found["name"]) and _TOKEN.match(self._text, found.end("name")) is None:
                continue
            start = self._identifier_start(found.start())
            if self._hide(_Name(self._text, found, start, found.end())):
                at = self._done
        return "".join(self._parts) + self._text[self._done :]

    def _identifier_start(self, at: int) -> int:
        least = max(self._done, at - _MAX_IDENTIFIER)
        while at > least and self._text[at - 1] in _IDENTIFIER:
            at -= 1
        return at

    def _hide(self, name: _Name) -> bool:
        """Whether this name had a value that was hidden."""
        match name.found.lastgroup:
            case "value" | "annotated":
                return self._hide_quoted(name.value) or self._hide_word(name, _PLAIN_WORD)
            case "assigned":
                return self._hide_assigned(name)
            case "colon":
                return self._hide_quoted(name.value) or self._hide_items(name.value) or self._hide_after_colon(name)
            case "comma":
                return self._is_first_of_pair(name) and self._hide_quoted(name.value)
            case "tag":
                opens = _OPENS_TAG.search(self._text[max(0, name.start - 50) : name.start])
                if (
                    self._text.startswith(" ", name.value)
                    and "</" not in self._text[name.value : self._end(_LINE, name.value)]
                ):
                    return False  # `AUTH <password> called without …`
                return opens is not None and self._replace_up_to(name.value, _OF_A_TAG)
            case "call":
                return self._hide_quoted(name.value)
            case "part":  # of a form
                is_part = self._text[max(0, name.start - 6) : name.start] == 'name="'
                return is_part and self._replace_up_to(name.value, _LINE)
            case _:
                return self._hide_after_blank(name)

    def _hide_assigned(self, name: _Name) -> bool:
        if _NOT_SECRET.match(self._text, name.value) or _DIRECTORY.match(self._text, name.start):
            return False
        if self._hide_quoted(name.value, libpq=True) or self._hide_items(name.value):
            return True
        return self._hide_word(name, _OF_A_QUERY if name.before in ("?", "&") else _WORD)

    def _hide_after_colon(self, name: _Name) -> bool:
        """A header, YAML, or a sentence."""
        at, text = name.value, self._text
        if name.found["quote"]:  # a number, or a constant
            return _NOT_SECRET.match(text, at) is None and self._replace(at, self._end(_NUMBER, at))
        if _NOT_SECRET.match(text, at) or _PROSE.match(text, at):
            return False
        if _HEADER.fullmatch(name.found["name"]):
            return self._hide_header(name)
        if (block := _BLOCK.match(text, at)) is not None:
            return self._hide_block(name, block.end())
        line_start = text.rfind("\n", 0, name.start) + 1
        if name.start - line_start <= _MAX_IDENTIFIER and _LINE_START.match(text[line_start : name.start]):
            line = _LINE.match(text, at)
            assert line is not None
            if not _PROSE_INSIDE.search(line[0]):
                return self._replace_up_to(at, _LINE)
        return self._hide_word(name, _PLAIN_WORD)

    def _hide_header(self, name: _Name) -> bool:
        scheme = _SCHEME.match(self._text, name.value)
        start = scheme.end() if scheme else name.value
        if scheme and scheme["one"]:
            return self._replace_up_to(start, _PLAIN_WORD)
        end = self._end(_LINE, start)
        if name.before in ("'", '"'):  # curl -H "Cookie: …" https://…
            closing = self._text.find(name.before, start, end)
            end = closing if closing >= 0 else end
        return self._replace(start, end)

    def _hide_block(self, name: _Name, at: int) -> bool:
        """The lines below that are indented further than the name's own."""
        line_start = self._text.rfind("\n", 0, name.start) + 1
        indent = len(self._text[line_start : name.start]) - len(self._text[line_start : name.start].lstrip(" "))
        end = at
        while end < len(self._text):
            line = self._text[end : self._end(_LINE, end)]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            end = self._text.find("\n", end) + 1 or len(self._text)
        first = at + len(self._text[at:end]) - len(self._text[at:end].lstrip(" "))
        return self._replace(first, at + len(self._text[at:end].rstrip()))

    def _hide_after_blank(self, name: _Name) -> bool:
        """`--password x` of a command line; `PASSWORD 'x'` of SQL, and of sentences."""
        if name.found["quote"]:
            return False
        if name.text.startswith("-"):
            if self._text.startswith("-", name.value) or _PROSE.match(self._text, name.value):
                return False
            return self._hide_quoted(name.value) or self._hide_word(name, _PLAIN_WORD)
        if _OF_ORACLE.match(self._text, name.found.start()) and not _PROSE.match(self._text, name.value):
            return self._hide_dollar_quoted(name.value) or self._hide_word(name, _PLAIN_WORD)
        if _LONG_TOKEN.match(self._text, name.value):  # `configure set secret_access_key …`
            return self._hide_word(name, _PLAIN_WORD)
        if not _PASSWORD.fullmatch(name.found["name"]):
            return False
        return self._hide_quoted(name.value) or self._hide_dollar_quoted(name.value)

    def _hide_word(self, name: _Name, pattern: re.Pattern[str]) -> bool:
        scheme = _SCHEME.match(self._text, name.value)
        return self._replace_up_to(scheme.end() if scheme else name.value, pattern)

    def _hide_quoted(self, at: int, *, libpq: bool = False) -> bool:
        """A quoted value. To libpq what follows the closing quote without a blank still belongs to it."""
        opening = _OPENING.match(self._text, at)
        if opening is None:
            return False
        if self._text.startswith(2 * opening["quote"], opening.end()):  # of Python and TOML, over several lines
            end = self._text.find(3 * opening["quote"], opening.end() + 2)
            if end >= 0:
                return self._replace(opening.end() + 2, end)
        end, after = self._closing(opening.end(), opening["quote"], len(opening["slashes"]))
        if libpq and after < len(self._text) and self._text[after] not in f"{_CLOSERS}\\ \t\r\n|":
            self._replace(opening.end(), self._end(_WORD, after), empty=True)
            self._parts.append(f"{opening['slashes']}{opening['quote']}")  # or masking a second time would hide more
            return True
        return self._replace(opening.end(), end, empty=True)

    def _hide_items(self, at: int) -> bool:
        """Each text of a list: headers that occur more than once are kept in one."""
        bracket = _BRACKET.match(self._text, at)
        if bracket is None:
            return False
        found = self._hide_quoted(bracket.end())
        while found and (following := _NEXT_ITEM.match(self._text, self._done)) is not None:
            self._hide_quoted(following.end())
        return found

    def _hide_dollar_quoted(self, at: int) -> bool:
        tag = _DOLLARS.match(self._text, at)
        if tag is None:
            return False
        end = self._text.find(tag[0], tag.end())
        return self._replace(tag.end(), end if end >= 0 else len(self._text), empty=True)

    def _is_first_of_pair(self, name: _Name) -> bool:
        """`("password", "x")`, and `["--password", "x"]` of a command line; not a name in a list of columns."""
        if name.found["quote"] is None or name.before not in ("'", '"'):
            return False
        if name.text.startswith("-"):
            return True
        at = name.start - 1
        while at > 0 and self._text[at - 1] in "\\bB":
            at -= 1
        if self._text[max(0, at - 1) : at] not in ("(", "["):
            return False
        opening = _OPENING.match(self._text, name.value)
        if opening is None:
            return False
        _, after = self._closing(opening.end(), opening["quote"], len(opening["slashes"]))
        return after >= len(self._text) or self._text[after] in ")],"

    def _closing(self, at: int, quote: str, slashes: int) -> tuple[int, int]:
        """Where the value ends, and where its closing quote does.

        A quote behind backslashes closes nothing, however many they are, unless the opening one was behind as many: the text
        may be the repr() of a DSN, or the repr() of that. A doubled quote is one of the value, as in SQL and YAML.
        """
        while (found := _CLOSING[quote].search(self._text, at)) is not None:
            if found[2] == "\n":
                return found.start(), found.start()
            if len(found[1]) > slashes:
                at = found.end()
            elif not found[1] and not slashes and self._text.startswith(quote, found.end()):
                at = found.end() + 1
            else:
                return found.start(), found.end()
        return len(self._text), len(self._text)

    def _end(self, pattern: re.Pattern[str], at: int) -> int:
        found = pattern.match(self._text, at)
        return found.end() if found else at

    def _replace_up_to(self, start: int, pattern: re.Pattern[str]) -> bool:
        """Hide what the pattern takes, but for brackets, quotes and commas at its end."""
        end = self._end(pattern, start)
        return self._replace(start, start + len(self._text[start:end].rstrip(f"{_CLOSERS} \t")))

    def _replace(self, start: int, end: int, *, empty: bool = False) -> bool:
        if end <= start and not empty:
            return False
        self._parts += (self._text[self._done : start], MASK)
        self._done = max(start, end)
        return True
