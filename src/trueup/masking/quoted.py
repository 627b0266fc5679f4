"""Secrets in what validators, servers and documents quote beside a name: the value stands in a line or a tag of its own.

pydantic writes the name of a field in one line and what was given for it in the next, and cuts a long value in its middle, where
the name of a password may be. PostgreSQL writes `Key (token)=(…)`.
"""

from __future__ import annotations

import re

from trueup.masking.mark import MASK
from trueup.masking.named import is_secret_name

_INPUT, _INPUT_END = "input_value=", ", input_type="
_KEY = re.compile(r"\(([\w\", .:]{1,300}+)\)=\(([^\n]*+)")
_PROPERTY = re.compile(r"(\b(?:name|key|id)=[\"']([^\"'<>\n]{1,80}+)[\"'][^<>\n]{0,200}+>)[^<\n]++(?=</)")
_CDATA = re.compile(r"(<([\w:.-]{1,80}+)(?:\s[^<>\n]{0,200}+)?>\s{0,20}+<!\[CDATA\[)[^\]]++")
_PART = re.compile(
    r"(\bname=\"([^\"\n]{1,80}+)\"(?:;[^\n]{0,200}+)?(?:\r?\n[\w-]{1,40}+:[^\n]{0,200}+){1,3}+\r?\n\r?\n)[^\r\n]++"
)
_BRACKETS = re.compile(r"(%5B([\w-]{1,80}+)%5D=)[^\s&\"'<>]++", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"((?<!\S)(?:ENV|setenv|setx|set[ \t]++-g?x)[ \t]++([A-Za-z_]\w{0,80}+)[ \t]++)\S++")
# Names in other languages than English and German, and those whose value is of several words.
_FOREIGN = re.compile(
    r"((?<!\w)(?:mot de passe|contraseña|senha|parola d'ordine|wachtwoord|lösenord|adgangskode|passord|salasana|hasło|heslo|şifre|jelszó|пароль"
    r"|パスワード|密码|密碼|비밀번호|sshpass|_auth|recovery[ _]codes?|(?P<words>mnemonic|seed[ _]?phrase))[\"']?\s{0,3}+[:=：]\s{0,3}+)"
    r"(?:\"[^\"\n]++|'[^'\n]++|(?(words)[^\n\"'},;]++|[^\s\"',;)}\]]++))",
    re.IGNORECASE,
)
_FOREIGN_HINTS = (
    "passe",
    "contrase",
    "senha",
    "parola",
    "wachtwoord",
    "lösen",
    "adgangs",
    "passord",
    "salasana",
    "hasło",
    "heslo",
    "ifre",
    "jelsz",
    "пароль",
    "パスワード",
    "密码",
    "密碼",
    "비밀번호",
    "sshpass",
    "_auth",
    "recovery",
    "mnemonic",
    "seed",
)


def mask_quoted(text: str) -> str:
    if _INPUT in text:
        text = _mask_inputs(text)
    if ")=(" in text:
        text = _KEY.sub(_mask_key, text)
    if "name=" in text or "key=" in text or "id=" in text:
        text = _PART.sub(_mask_named, _PROPERTY.sub(_mask_named, text))
    if "<![CDATA[" in text:
        text = _CDATA.sub(_mask_named, text)
    if "%5" in text:
        text = _BRACKETS.sub(_mask_named, text)
    if "ENV" in text or "set" in text:
        text = _ENVIRONMENT.sub(_mask_named, text)
    lowered = text.lower()
    if any(hint in lowered for hint in _FOREIGN_HINTS):
        text = _FOREIGN.sub(rf"\g<1>{MASK}", text)
    return text


def _mask_named(found: re.Match[str]) -> str:
    return f"{found[1]}{MASK}" if is_secret_name(found[2]) else found[0]


def _mask_key(found: re.Match[str]) -> str:
    if not any(is_secret_name(name.strip('" ')) for name in re.split(r"[,.:]", found[1])):
        return found[0]
    values, closing, rest = found[2].rpartition(")")
    return f"({found[1]})=({MASK}{closing}{rest if closing else ''}" if values else found[0]


def _mask_inputs(text: str) -> str:
    """What pydantic quotes of the fields of secret names, and every container that it has cut."""
    lines = text.split("\n")
    for n, line in enumerate(lines):
        start, end = line.find(_INPUT), line.rfind(_INPUT_END)
        if not 0 <= start < end:
            continue
        start += len(_INPUT)
        place = lines[n - 1].strip() if n else ""
        cut = "..." in line[start:end] and line[start] not in "\"'"
        if cut or any(map(is_secret_name, re.split(r"[.\[\]: |]", place))):
            lines[n] = f"{line[:start]}{MASK}{line[end:]}"
    return "\n".join(lines)
