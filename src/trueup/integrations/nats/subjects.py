"""Subjects: tokens separated by dots. In a stream's patterns `*` stands for one token and a final `>` for one or more. Pure."""

from __future__ import annotations

from trueup.errors import ConfigError

MAX_BYTES = 1_000  # bytes; the server reads lines of 4,096, in which the reply's subject has to fit, too


def fault_in_subject(subject: str) -> str | None:
    """Why nothing can be published under this subject, or None."""
    if "*" in subject or ">" in subject:
        return f"{subject!r:.120} contains a wildcard; a message needs one exact subject"
    return _fault(subject)


def checked_patterns(subjects: object) -> tuple[str, ...]:
    """The subjects of a stream. Raises ConfigError."""
    if isinstance(subjects, str) or not isinstance(subjects, list | tuple) or not subjects:
        raise ConfigError(f'subjects={subjects!r:.80}: a list is needed, such as ["orders.>"]')
    for subject in subjects:
        fault = _fault_in_pattern(subject) if isinstance(subject, str) else f"{subject!r:.80} is not text"
        if fault is not None:
            raise ConfigError(f"subjects: {fault}")
    return tuple(subjects)


def _fault_in_pattern(pattern: str) -> str | None:
    tokens = pattern.split(".")
    if ">" in tokens[:-1]:
        return f"{pattern!r:.120}: > can only be the last token"
    return _fault(pattern)


def _fault(subject: str) -> str | None:
    if not all(subject.split(".")):
        return f"{subject!r:.120} has an empty token; write it like 'orders.paid'"
    if any(letter.isspace() or not letter.isprintable() for letter in subject):
        return f"{subject!r:.120} contains a space or a control character"
    if len(subject.encode("utf-8", "replace")) > MAX_BYTES:
        return f"{subject[:40]!r}… is longer than {MAX_BYTES} bytes"
    return None


def covers(pattern: str, other: str) -> bool:
    """Whether `pattern` matches every subject that `other`, a subject or a pattern, matches."""
    ours, theirs = pattern.split("."), other.split(".")
    for place, mine in enumerate(ours):
        if mine == ">":
            return len(theirs) > place
        if place >= len(theirs) or theirs[place] == ">" or mine not in ("*", theirs[place]):
            return False
    return len(theirs) == len(ours)
