"""Draws the diagrams of the documentation as SVG, so that pages need no script from elsewhere to show them.

The states of a job come from `jobs/states.py`; a test fails until `python -m tools.diagrams` has run after a change. The diagrams
of the checked model are drawn by hand, statement by statement.
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
LEADING = 17  # from one line of a label to the next


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
    end: str  # the same box: a loop above it
    label: str = ""  # may have several lines
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
    if start is end:
        return _loop(start, arrow)
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
    way = f"M{x1:.1f} {y1:.1f} Q{pull[0]:.1f} {pull[1]:.1f} {x2:.1f} {y2:.1f}"
    return _line(way, dashes) + _label(x, y, arrow.label)


def _loop(box: Box, arrow: Arrow) -> str:
    """Out of the top of a box and back into it, with the label above."""
    top, left, right = box.y - box.height / 2 - 4, box.x - 24, box.x + 24
    way = f"M{left:.1f} {top:.1f} C{left - 14:.1f} {top - 44:.1f} {right + 14:.1f} {top - 44:.1f} {right:.1f} {top:.1f}"
    return _line(way, "") + _label(box.x, top - 42 - LEADING * arrow.label.count("\n"), arrow.label)


def _line(way: str, dashes: str) -> str:
    return f'<path d="{way}" fill="none" stroke="{LINE}" stroke-width="1.6" marker-end="url(#head)"{dashes}/>'


def _label(x: float, y: float, label: str) -> str:
    return "".join(
        f'<text x="{x:.1f}" y="{y + LEADING * place:.1f}" text-anchor="middle" fill="{LINE}">{escape(line)}</text>'
        for place, line in enumerate(label.split("\n"))
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


def model_jobs() -> str:
    boxes = {
        "": Box(0, 80, "", width=0),
        "queued": Box(140, 80, "queued"),
        "open": Box(480, 80, "claim under way", width=150),
        "running": Box(780, 80, "running"),
        "done": Box(1060, 40, "done"),
        "dead": Box(1060, 150, "dead"),
    }
    arrows = [
        Arrow("", "queued"),
        Arrow("queued", "open", "jobs/claim locks the\nworker's row and the job", shift=(0, -25)),
        Arrow("open", "running", "commits, with\na new term", shift=(0, -25)),
        Arrow("running", "done", "jobs/complete, fenced", shift=(-8, -14)),
        Arrow("running", "dead", "jobs/rescue, when\nattempts are used up", shift=(-44, 20)),
        Arrow(
            "running",
            "queued",
            "jobs/retry, jobs/release, fenced\njobs/rescue, when the lease has passed or the holder has no row",
            bend=-200,
            shift=(0, 20),
        ),
    ]
    return draw((1130, 250), "A job in the checked model: its states, and the statements that move it", boxes, arrows)


def model_workers() -> str:
    boxes = {
        "": Box(0, 130, "", width=0),
        "trusted": Box(260, 130, "trusted"),
        "over": Box(600, 70, "over"),
        "left": Box(600, 200, "left"),
        "rescued": Box(860, 70, "rescued"),
        "end": Box(1030, 70, "", width=0),
        "gone": Box(1030, 200, "", width=0),
    }
    arrows = [
        Arrow("", "trusted", "workers/register"),
        Arrow("trusted", "trusted", "workers/renew"),
        Arrow("trusted", "over", "its own deadline, or\nworkers/renew refused", shift=(-30, -34)),
        Arrow("trusted", "left", "workers/hold, workers/leave", shift=(-40, 26)),
        Arrow("over", "rescued", "jobs/rescue\nmarks the row", shift=(0, -25)),
        Arrow("rescued", "end", "workers/forget"),
        Arrow("left", "gone", "the row is gone, unless a job still runs"),
    ]
    return draw(
        (1060, 240), "A worker in the checked model: from its registration to the end of its row", boxes, arrows
    )


def model_ticks() -> str:
    boxes = {
        "": Box(0, 130, "", width=0),
        "due": Box(230, 130, "due"),
        "read": Box(500, 130, "locked and read", width=150),
        "decided": Box(810, 130, "has its verdict", width=150),
        "pruned": Box(1100, 130, "pruned"),
    }
    arrows = [
        Arrow("", "due", "the clock\ncomes to it", shift=(0, -25)),
        Arrow("due", "read", "schedules/lock,\nschedules/due", bend=-60, shift=(0, -25)),
        Arrow("read", "due", "a crash, or the\nrow has changed", bend=-50, shift=(26, 18)),
        Arrow("read", "decided", "schedules/fire,\nschedules/advance,\none commit", shift=(0, -42)),
        Arrow("decided", "decided", "a backfill turns skipped into fired"),
        Arrow("decided", "pruned", "history/drop_day", shift=(0, -10)),
        Arrow("due", "decided", "people change the schedule, and settle what is due first", bend=260, shift=(0, 20)),
    ]
    return draw((1170, 310), "A tick in the checked model: from due to its verdict", boxes, arrows)


def model_runs() -> str:
    boxes = {
        "": Box(0, 100, "", width=0),
        "fired": Box(230, 100, "fired"),
        "running": Box(530, 100, "fired, job running", width=160),
        "done": Box(900, 50, "fired, job done", width=150),
        "skipped": Box(900, 190, "skipped", width=150),
    }
    arrows = [
        Arrow("", "fired", "schedules/fire"),
        Arrow("fired", "running", "jobs/claim", bend=-40),
        Arrow("running", "fired", "jobs/rescue", bend=-40, shift=(0, 16)),
        Arrow("running", "done", "jobs/complete, fenced", shift=(-30, -16)),
        Arrow("running", "skipped", "jobs/drop_run, fenced:\njob and tick in one statement", shift=(96, -26)),
        Arrow("skipped", "fired", "a backfill", bend=-130, shift=(-60, 20)),
    ]
    return draw((980, 270), "The run of a tick in the checked model", boxes, arrows)


DRAWN = {
    "states.svg": states,
    "layers.svg": layers,
    "model-jobs.svg": model_jobs,
    "model-workers.svg": model_workers,
    "model-ticks.svg": model_ticks,
    "model-runs.svg": model_runs,
}


def main() -> None:
    for name, make in DRAWN.items():
        (ASSETS / name).write_text(make(), "utf-8")


if __name__ == "__main__":
    main()
