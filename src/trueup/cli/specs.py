"""A schedule's rule on the command line: as options, and as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from trueup.cli.errors import WrongUsage
from trueup.cli.options import duration_option, option

if TYPE_CHECKING:
    from trueup.schedules.spec import Spec

CronOption = Annotated[
    str | None, option("--cron", "EXPR", 'Run at the times of a cron expression, such as "30 2 * * *".')
]
TzOption = Annotated[str | None, option("--tz", "ZONE", "With --cron: the time zone. Default: UTC.")]
DstOption = Annotated[
    str | None,
    option("--dst", "RULE", "With --cron: the daylight-saving rule. debian runs skipped times late; literal does not."),
]
EveryOption = Annotated[str | None, duration_option("--every", help="Run at a fixed interval, such as 5m.")]
AtOption = Annotated[str | None, option("--at", "MOMENT", "Run once, at a time such as 2031-01-01T09:00Z.")]


def chosen(cron: str | None, tz: str | None, dst: str | None, every: str | None, at: str | None) -> Spec | None:
    """The rule of the options; None without any. Raises a usage error for more than one."""
    from trueup.schedules import Cron, Every, Once

    if sum(option is not None for option in (cron, every, at)) > 1:
        raise WrongUsage("give one of --cron, --every and --at")
    if cron is None and (tz is not None or dst is not None):
        raise WrongUsage("--tz and --dst go with --cron")
    if cron is not None:
        return Cron(cron, tz or "UTC", dst or "debian")  # type: ignore[arg-type]  # it refuses what is neither
    if every is not None:
        return Every(every)
    return None if at is None else Once(moment("--at", at))


def moment(option: str, text: str) -> datetime:
    """A moment with its time zone. Raises a usage error otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(f"{option} {text}: write it like 2031-01-01T09:00Z") from None
    if found.tzinfo is None:
        raise WrongUsage(f"{option} {text} has no time zone; write it like {text}Z or {text}+01:00")
    return found


def text(spec: Mapping[str, str]) -> str:
    """A stored rule as people write it."""
    match spec.get("kind"):
        case "cron":
            return f"{spec['expr']} {spec['tz']}" + (" (literal)" if spec["dst"] == "literal" else "")
        case "every":
            return f"every {spec['interval']}"
        case "once":
            return f"once at {spec['at']}"
        case other:
            return f"{other} (of another release)"
