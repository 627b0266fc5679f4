"""Secrets that are known by their own shape: tokens whose issuers gave them a prefix, credentials of HTTP, private keys."""

from __future__ import annotations

import re
from base64 import b64decode

from trueup.masking.mark import MASK

_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"eyJ[\w-]{8,}+(?:(?:\.[\w-]*+){2,4}|\.[\w-]{8,}+)"  # JSON Web Tokens, also cut off
    r"|A(?:KIA|SIA|BIA|CCA|GPA|IDA|ROA)[A-Z0-9]{16}(?![A-Za-z0-9])"  # AWS
    r"|gh[opsur]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+|gl(?:pat|ptt|rt|dt|cbt|soat)-[\w-]{16,}+"
    r"|xox[a-z](?:\.xox[a-z])?-[\w-]{10,}+|xapp-[\w-]{10,}+"  # Slack
    r"|[rs]k_(?:live|test)_\w{8,}+|whsec_[\w+/=-]{8,}+|sk-[\w-]{20,}+"  # Stripe and others
    r"|AIza[\w-]{30,}+|ya29\.[\w.-]{10,}+|GOCSPX-[\w-]{10,}+"  # Google
    r"|npm_[A-Za-z0-9]{30,}+|pypi-[\w-]{16,}+|hf_[A-Za-z0-9]{30,}+|do[opr]_v1_[a-f0-9]{32,}+"
    r"|SG\.[\w-]{16,}+\.[\w-]{16,}+|hv[bs]\.[\w-]{20,}+|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,}+"
    r"|(?:bot)?[0-9]{8,10}:AA[\w-]{30,}+"  # Telegram's bots
    r"|sq0[a-z]{3}-[\w-]{20,}+|dapi[a-f0-9]{32}(?:-[0-9])?|dp\.[a-z]{2,5}\.[A-Za-z0-9]{30,}+|ATATT3x[\w=-]{20,}+"
    r"|(?:lin_api|dckr_pat|pscale_(?:pw|tkn|oauth)|sb_secret|figd|gsk|r8|glsa|sntry[su]|tskey|rubygems|phc|phx)_[\w.-]{20,}+"
    r"|sbp_[a-f0-9]{32,}+|(?:xai|pplx|nvapi|NRAK|tskey-auth)-[\w-]{20,}+|key-[a-f0-9]{32}(?![a-z0-9])"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,}+|v[1-4]\.local\.[\w-]{20,}+|gAAAAA[\w-]{50,}+=*+"
    r"|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}+|ntn_[A-Za-z0-9]{30,}+|secret_[A-Za-z0-9]{40,}+|ATBB[A-Za-z0-9]{28,}+|fm[12][ar]?_[\w+/=-]{20,}+"
    r"|[MNO](?=[\w-]{0,26}[0-9])[\w-]{23,27}\.[\w-]{6}\.(?=[\w-]{0,26}[0-9])[\w-]{27,}+|\w{3}8Q~[\w.~-]{30,}+|1//0[\w-]{20,}+"  # Discord's bots, Azure, Google
    r"|(?:glc|sgp|bkua|CCIPAT)_[\w=-]{20,}+|PMAK-[\w-]{20,}+|dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.\w{40,}+"  # Grafana and others
    r"|SK[a-f0-9]{32}(?![A-Za-z0-9])|pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"  # Twilio, Airtable
    r"|S[AOUNXC][A-Z2-7]{56}(?![A-Za-z0-9])"  # seeds of NATS
    # Hashes of passwords: what PostgreSQL, Unix and web frameworks store.
    r"|pbkdf2_sha\w{1,4}\$[0-9]++\$[\w./$+=-]{16,}+|md5[0-9a-f]{32}(?![0-9a-z])|SCRAM-SHA-(?:1|256|512)\$[\w+/=:$]{20,}+|\$(?:2[abxy]?|[1567y]|apr1|argon2[a-z]{0,2}|scrypt)\$[\w./$+=,-]{16,}+"
    r")",
    re.ASCII,
)
_INCOMING_HOOK = re.compile(
    r"((?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks|webhook\.office\.com/webhookb2|hooks\.zapier\.com/hooks/catch|maker\.ifttt\.com/trigger/[\w-]{1,80}+(?:/json)?/with/key)/)[\w/@-]++",
    re.ASCII,
)
_DOCKERS = re.compile(r'(\\*+"auth\\*+"\s*+:\s*+\\*+")([A-Za-z0-9+/=]{8,}+)', re.ASCII)
_OF_A_JWK = re.compile(r'("(?:d|p|q|dp|dq|qi|k)"\s*+:\s*+")[\w-]{16,}+', re.ASCII)
_CREDENTIALS = re.compile(r"\b((bearer|basic)[ \t]++)([\w.~+/=-]{8,}+)", re.IGNORECASE | re.ASCII)
_EVIDENTLY_A_TOKEN = re.compile(r"[\w.~+/=-]*?(?:[0-9=]|[a-z][A-Z])|[\w.~+/=-]{24}", re.ASCII)

_PEM_LINE = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n\\")


def mask_shapes(text: str) -> str:
    if "PRIVATE KEY" in text:
        text = _mask_private_keys(text)
    text = _TOKENS.sub(MASK, text)
    if ".com/" in text:
        text = _INCOMING_HOOK.sub(rf"\g<1>{MASK}", text)
    if '"auth' in text:
        text = _DOCKERS.sub(lambda found: f"{found[1]}{MASK if _is_basic(found[2]) else found[2]}", text)
    if '"kty"' in text:
        text = _OF_A_JWK.sub(rf"\g<1>{MASK}", text)
    lowered = text.lower()
    return _CREDENTIALS.sub(_mask_credentials, text) if "bearer" in lowered or "basic" in lowered else text


def _mask_credentials(found: re.Match[str]) -> str:
    """Basic and bearer are plain words, too: "bearer of bad news", "basic authentication"."""
    hidden = _is_basic(found[3]) if found[2].lower() == "basic" else _EVIDENTLY_A_TOKEN.match(found[3])
    return f"{found[1]}{MASK}" if hidden else found[0]


def _is_basic(token: str) -> bool:
    try:
        return b":" in b64decode(token.rstrip(".=")[:1000] + "==")
    except ValueError:
        return False


def _mask_private_keys(text: str) -> str:
    """What is between the two lines; to the end of the text if it was cut off, from the key's start if it was cut before."""
    parts: list[str] = []
    done, inside = 0, False
    for line in _PEM_LINE.finditer(text):
        if line[1] == "BEGIN":
            parts.append(MASK if inside else text[done : line.start()])
        elif inside:
            parts.append(MASK)
        else:
            start = line.start()
            while start > done and text[start - 1] in _BASE64:
                start -= 1
            parts += (text[done:start], MASK if start < line.start() else "")
        parts.append(line[0])
        done, inside = line.end(), line[1] == "BEGIN"
    return "".join(parts) + (MASK if inside else text[done:])
