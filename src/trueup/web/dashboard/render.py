"""Templates, and the functions and filters that all of them may use."""

from __future__ import annotations

from html import unescape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trueup.program import typed
from trueup.web.dashboard import charts, formats
from trueup.web.dashboard.attention import badge, titled
from trueup.web.dashboard.visit import Visit

# Path, name, and the key that goes there after g.
PAGES = (
    ("overview", "Overview", "o"),
    ("jobs", "Jobs", "j"),
    ("queues", "Queues", "q"),
    ("reconcilers", "Reconcilers", "r"),
    ("schedules", "Schedules", "s"),
    ("fleet", "Fleet", "f"),
    ("recovery", "Recovery", "v"),
    ("alerts", "Alerts", "a"),
    ("audit", "Audit", "u"),
)

# A shape beside each word: some people cannot tell the colours apart.
SHAPES = {
    **dict.fromkeys(
        ("done", "fired", "changed", "held", "alive", "working", "caught up", "unchanged", "ok"), ("ok", "●")
    ),
    **dict.fromkeys(("running", "active"), ("run", "◐")),
    **dict.fromkeys(("queued", "resting", "waiting", "finished", "free"), ("idle", "○")),
    **dict.fromkeys(("paused", "stopping", "retry", "late", "skipped", "stopped", "behind"), ("warn", "◆")),
    **dict.fromkeys(("dead", "failing", "failed", "quarantined", "gone", "refused", "lost", "firing"), ("bad", "▲")),
    **dict.fromkeys(("cancelled", "discarded", "retired", "off", "undone"), ("off", "■")),
}


def state(word: str, shown: str | None = None) -> Markup:
    """A state as a coloured pill with a shape and the word."""
    colour, shape = SHAPES.get(word, ("idle", "○"))
    return Markup('<span class="state {}"><i aria-hidden="true">{}</i>{}</span>').format(colour, shape, shown or word)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("trueup.web.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": formats.count,
        "short": formats.short,
        "span": formats.length,
        "rate": formats.rate,
        "clock": formats.clock,
        "brief": formats.brief,
        "pretty": formats.pretty,
        "rule": formats.rule,
        "error_line": formats.error_line,
        "typed": typed,
    }
    made.globals |= {"state": state, "charts": charts, "pages": PAGES, "titled": titled, "badge": badge}
    return made


TEMPLATES = _environment()


def whole(template: str, context: dict[str, Any]) -> str:
    return TEMPLATES.get_template(template).render(context)


def live(template: str, context: dict[str, Any]) -> dict[str, Any]:
    """The parts that change while a page is open: its main part, its title, and the badge of concerns."""
    found = TEMPLATES.get_template(template)
    made = found.new_context(context)
    html, name = ("".join(found.blocks[block](made)) for block in ("live", "title"))
    concerns = context["concerns"]
    return {"html": html, "title": unescape(titled(concerns) + name), "badge": badge(concerns)}


def context_of(visit: Visit) -> dict[str, Any]:
    """The values of every template of an App's page."""
    return {
        "visit": visit,
        "url": visit.url,
        "base": visit.base,
        "may_act": visit.person.may_act,
        "now": visit.now,
        "when": lambda moment: formats.when(moment, visit.now),
    }
