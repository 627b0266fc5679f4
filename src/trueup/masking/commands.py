"""Secrets that are known by their place in a command: of a program's command line, or of a protocol, as logs and errors quote them.

A line is divided into its words, whether blanks, quotes or the commas of a list separate them. Only a line with the name of such a
command is looked at, and only its words are hidden that the command takes a secret at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trueup.masking.mark import MASK

Span = tuple[int, int]

_LINE = re.compile(r"[^\n]++")
_WORD = re.compile(
    r"""\\*"(?P<double>[^"\n]*+)"|\\*'(?P<single>[^'\n]*+)'|(?P<plain>(?:[^\s"',;|()\[\]]|,(?!\s|\Z))++)"""
)
_MAX_WORDS = 60  # words of a line

# What follows a verb in a sentence about it.
_ABOUT_WORDS = (
    "and argument called command commands could denied error expected extension failed failure for from header in is key mechanism "
    "method not of ok on or out rejected required response succeeded success sent timed timeout to token unsupported was with without "
    "plain login cram-md5 digest-md5 external gssapi ntlm scram-sha-1 scram-sha-256 xoauth2 tls ssl"
)
_ABOUT = frozenset(_ABOUT_WORDS.split())
_WITH_SECRET = frozenset(["plain", "login", "xoauth2"])  # mechanisms of SMTP, with a first response
_GOES_ON = frozenset(["SETNAME", "KEYS", "COPY", "REPLACE"])  # with these the command of Redis goes on
_TAG = re.compile(r"[A-Za-z]{0,4}[0-9]{1,6}")
_PATH = re.compile(r"[\w.-]*+/\S*|test\w*|.*::.*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Words:
    line: str
    spans: Sequence[Span]

    def __getitem__(self, n: int) -> str:
        start, end = self.spans[n]
        return self.line[start:end]

    def __len__(self) -> int:
        return len(self.spans)


def _after_auth(words: _Words, at: int) -> Iterator[Span]:
    """`AUTH [user] password` of Redis, alone or as part of HELLO and MIGRATE, and `AUTH PLAIN …` of SMTP."""
    given = list(range(at + 1, min(at + 4, len(words))))
    end = next((n for n in given if words[n].upper() in _GOES_ON), None)
    if end is None and len(words) > at + 3:
        return
    given = [n for n in given if end is None or n < end]
    if not 1 <= len(given) <= 2 or words[given[0]].startswith("<"):  # `AUTH <password>` in a sentence
        return
    first, last = words[given[0]].lower(), words[given[-1]].lower()
    if last not in _ABOUT and (first not in _ABOUT or first in _WITH_SECRET):
        yield words.spans[given[-1]]


def _after_pass(words: _Words, at: int) -> Iterator[Span]:
    """`PASS password` of FTP, POP3 and IRC; not the line of a test that has passed."""
    if len(words) == at + 2 and words[at + 1].lower() not in _ABOUT and not _PATH.match(words[at + 1]):
        yield words.spans[at + 1]


def _after_login(words: _Words, at: int) -> Iterator[Span]:
    """`a1 LOGIN user password` of IMAP."""
    if at == 1 and len(words) == 4 and _TAG.fullmatch(words[0]):
        yield words.spans[3]


def _of_an_acl(words: _Words, at: int) -> Iterator[Span]:
    """`ACL SETUSER ann on >password` of Redis, and `user ann on >password` of its files."""
    if words[at] == "SETUSER" or (at + 2 < len(words) and words[at + 2] in ("on", "off")):
        for n in range(at + 2, len(words)):
            if words[n][:1] in (">", "<", "#"):
                yield words.spans[n][0] + 1, words.spans[n][1]


def _option(*names: str, attached: str = "", only_after: str = "") -> Callable[[_Words, int], Iterator[Span]]:
    """What follows one of these options; or with `attached`, in the same word. `only_after`: a word that comes before it."""

    def spans(words: _Words, at: int) -> Iterator[Span]:
        seen = not only_after
        for n in range(at + 1, len(words)):
            start, end = words.spans[n]
            if not seen:
                seen = words[n] == only_after
            elif words[n] in names and n + 1 < len(words):
                yield words.spans[n + 1]
            elif attached and words[n].startswith(attached) and end > start + len(attached):
                yield start + len(attached), end

    return spans


def _argument(place: int, *verbs: str) -> Callable[[_Words, int], Iterator[Span]]:
    """The word at this place after a verb of the program."""

    def spans(words: _Words, at: int) -> Iterator[Span]:
        for n in range(at + 1, len(words) - place):
            if words[n] in verbs:
                yield words.spans[n + place]
                return

    return spans


def _user_and(separator: str, *names: str) -> Callable[[_Words, int], Iterator[Span]]:
    """`user:password` after one of these options, which may stand at the end of several in one word: `-sSu`."""

    def spans(words: _Words, at: int) -> Iterator[Span]:
        for n in range(at + 1, len(words) - 1):
            bundled = words[n][:1] == "-" and words[n][1:2] != "-" and f"-{words[n][-1]}" in names
            if words[n] in names or bundled:
                start, end = words.spans[n + 1]
                place = words.line.find(separator, start, end)
                if place >= 0:
                    yield place + 1, end

    return spans


_VERBS = {
    "AUTH": _after_auth,
    "AUTH2": _after_auth,
    "PASS": _after_pass,
    "LOGIN": _after_login,
    "SETUSER": _of_an_acl,
    "user": _of_an_acl,
}
_ATTACHED_P = _option(attached="-p")
_LOGIN = _option("-p", only_after="login")
_PROGRAMS = {
    **dict.fromkeys(
        ("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlshow", "mysqlsh", "mariadb", "mariadb-dump"),
        _ATTACHED_P,
    ),
    **dict.fromkeys(("7z", "7za", "7zz"), _ATTACHED_P),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport"), _option("-p")),
    **dict.fromkeys(("ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami", "ldappasswd"), _option("-w")),
    **dict.fromkeys(("mosquitto_pub", "mosquitto_sub", "unzip", "zip"), _option("-P")),
    **dict.fromkeys(("snmpget", "snmpwalk", "snmpset"), _option("-c")),
    **dict.fromkeys(("docker", "podman", "az", "helm", "skopeo", "buildah", "oc"), _LOGIN),
    "sshpass": _option("-p", attached="-p"),
    "redis-cli": _option("-a"),
    "valkey-cli": _option("-a"),
    "keytool": _option("-storepass", "-keypass", "-srcstorepass", "-deststorepass"),
    "jarsigner": _option("-storepass", "-keypass"),
    "rabbitmqctl": _argument(2, "add_user", "change_password", "authenticate_user"),
    "htpasswd": _argument(3, "-b", "-cb", "-bc"),
    "smbclient": _user_and("%", "-U"),
    "curl": _user_and(":", "-u", "-U", "--user", "--proxy-user"),
}
_HINTS = re.compile(
    rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(_VERBS | _PROGRAMS, key=len, reverse=True)))})(?![\w-])"
)


def mask_commands(text: str) -> str:
    if _HINTS.search(text) is None:
        return text
    return _LINE.sub(lambda line: _masked(line[0]) if _HINTS.search(line[0]) else line[0], text)


def _masked(line: str) -> str:
    spans: list[Span] = []
    for word in _WORD.finditer(line):
        spans.append(word.span(str(word.lastgroup)))
        if len(spans) == _MAX_WORDS:
            break
    words = _Words(line, spans)
    parts: list[str] = []
    done = 0
    for start, end in sorted({span for n in range(len(words)) for span in _secrets(words, n)}):
        if start >= done and end > start:
            parts += (line[done:start], MASK)
            done = end
    return "".join(parts) + line[done:]


def _secrets(words: _Words, at: int) -> Iterator[Span]:
    name = words[at]
    command = _VERBS.get(name) or _PROGRAMS.get(name.rpartition("/")[2])
    return command(words, at) if command else iter(())
