"""Draws the diagrams of the documentation as SVG, so that pages need no script from elsewhere to show them.

The states of a job come from `jobs/states.py`; a test fails until `python -m tools.diagrams` has run after a change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import hypot
from pathlib import Path

from trueup.jobs.states import MOVES

ASSETS = Path(__file__).parents[1] / "docs/assets"
LINE = "#7c8796"  # readable on white and on the dark page
FILL, EDGE, INK = "#eef1fb", "#4051b5", "#1d2333"
FONT = "system-ui, sans-serif"


@dataclass(frozen=True)
class Box:
    x: float  # of its centre
    y: float
    text: str
    width: float = 130
    height: float = 44

    def border(self, toward: tuple[float, float]) -> tuple[float, float]:
        """Where a line from the centre toward a point leaves the box."""
        dx, dy = toward[0] - self.x, toward[1] - self.y
        scale = 1 / max(abs(dx) / (self.width / 2 + 4), abs(dy) / (self.height / 2 + 4), 1e-9)
        return self.x + dx * scale, self.y + dy * scale


@dataclass(frozen=True)
class Arrow:
    start: str
    end: str
    label: str = ""
    bend: float = 0  # how far the line swings out to its right, looking along it
    shift: tuple[float, float] = (0, -7)  # of the label, from the middle of the line
    dashed: bool = False


def draw(size: tuple[float, float], description: str, boxes: dict[str, Box], arrows: Sequence[Arrow]) -> str:
    width, height = size
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'font-family="{FONT}" font-size="14" role="img">',
        f"<title>{escape(description)}</title>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{LINE}"/></marker></defs>',
        *(_arrow(boxes, each) for each in arrows),
        *(_box(each) for each in boxes.values() if each.text),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(box: Box) -> str:
    left, top = box.x - box.width / 2, box.y - box.height / 2
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{box.width:g}" height="{box.height:g}" rx="8" fill="{FILL}" stroke="{EDGE}"/>'
        f'<text x="{box.x:g}" y="{box.y + 5:g}" text-anchor="middle" fill="{INK}">{escape(box.text)}</text>'
    )


def _arrow(boxes: dict[str, Box], arrow: Arrow) -> str:
    start, end = boxes[arrow.start], boxes[arrow.end]
    dx, dy = end.x - start.x, end.y - start.y
    length = hypot(dx, dy)
    pull = ((start.x + end.x) / 2 - dy / length * arrow.bend, (start.y + end.y) / 2 + dx / length * arrow.bend)
    x1, y1 = start.border(pull if arrow.bend else (end.x, end.y))
    x2, y2 = end.border(pull if arrow.bend else (start.x, start.y))
    if not arrow.bend:
        pull = ((x1 + x2) / 2, (y1 + y2) / 2)
    dashes = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    x = (x1 + 2 * pull[0] + x2) / 4 + arrow.shift[0]
    y = (y1 + 2 * pull[1] + y2) / 4 + arrow.shift[1]
    return (
        f'<path d="M{x1:.1f} {y1:.1f} Q{pull[0]:.1f} {pull[1]:.1f} {x2:.1f} {y2:.1f}" fill="none" stroke="{LINE}" '
        f'stroke-width="1.6" marker-end="url(#head)"{dashes}/>'
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{LINE}">{escape(arrow.label)}</text>'
    )


STATES = {
    "": Box(0, 130, "", width=0),
    "queued": Box(170, 130, "queued"),
    "running": Box(580, 130, "running"),
    "done": Box(810, 40, "done"),
    "dead": Box(810, 220, "dead"),
    "cancelled": Box(580, 360, "cancelled"),
}
SHAPES: dict[tuple[str, str], tuple[float, tuple[float, float]]] = {  # the bend, and where the label is
    ("queued", "running"): (-90, (0, -7)),
    ("running", "queued"): (-6, (0, -8)),
    ("running", "done"): (0, (-28, -10)),
    ("running", "dead"): (0, (18, -10)),
    ("running", "cancelled"): (0, (24, 40)),
    ("dead", "queued"): (-70, (-70, 20)),
    ("dead", "cancelled"): (0, (30, 16)),
    ("queued", "cancelled"): (70, (-34, 16)),
}


def states() -> str:
    """The life of a job: moves between the same two states share a line."""
    moves: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (start, end) in MOVES.items():
        moves[start.value, end.value].append(name)
    arrows = [Arrow("", "queued", "enqueue")]
    for pair, names in moves.items():
        arrows.append(Arrow(*pair, " · ".join(names), *SHAPES[pair]))
    return draw((890, 400), "The states of a job and the moves between them", STATES, arrows)


LAYERS = {
    "edges": Box(330, 34, "cli · web · demo · testing · integrations", width=330),
    "app": Box(330, 114, "app"),
    "operate": Box(330, 194, "operate"),
    "work": Box(330, 274, "work"),
    "observe": Box(570, 274, "observe"),
    "store": Box(180, 354, "store"),
    "rules": Box(480, 354, "jobs · schedules · leases · reconcile", width=290),
    "database": Box(180, 434, "PostgreSQL"),
}


def layers() -> str:
    """Which package imports which: arrows point downward only."""
    arrows = [
        *(Arrow(*pair) for pair in (("edges", "app"), ("app", "operate"), ("operate", "work"), ("work", "store"))),
        *(Arrow(*pair) for pair in (("work", "rules"), ("store", "rules"), ("store", "database"))),
        Arrow("work", "observe", "events", dashed=True),
    ]
    return draw((660, 470), "The packages of trueup and which of them import which", LAYERS, arrows)


DRAWN = {"states.svg": states, "layers.svg": layers}


def main() -> None:
    for name, make in DRAWN.items():
        (ASSETS / name).write_text(make(), "utf-8")


if __name__ == "__main__":
    main()
