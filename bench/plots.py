"""Draws the figures of README and docs from what the benchmarks have measured.

    python -m bench.peers --json > bench/results/peers.json
    python -m bench.growth --json > bench/results/growth.json
    python -m bench.plots

A test fails until it has run after a change of the results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from math import log
from pathlib import Path
from typing import Any

from bench.growth import GOAL, STEPS

RESULTS = Path(__file__).parent / "results"
ASSETS = Path(__file__).parents[1] / "docs/assets"
OURS, THEIRS = "#4051b5", "#9aa5b8"
LINE = "#7c8796"  # readable on white and on the dark page, as texts in it are
FONT = "system-ui, sans-serif"
WIDTH, ROW = 760, 24
LABEL = 250  # the part of the width with the names
WORST = 8.0  # times as long; what is above is drawn at the edge

BARS = (
    ("drain", "jobs drained per second", "per_s"),
    ("bulk enqueue", "jobs enqueued in bulk per second", "per_s"),
    ("one-by-one enqueue", "jobs enqueued one by one per second", "per_s"),
    ("enqueue by 100 callers", "jobs enqueued by 100 callers per second", "per_s"),
)


def svg(height: float, title: str, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'font-family="{FONT}" font-size="13" fill="{LINE}" role="img">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"]) + "\n"


def text(x: float, y: float, said: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{weight}>{escape(said)}</text>'


def peers(result: Mapping[str, Any]) -> str:
    """A group of bars for each kind of work, one per contestant; the longest bar of a group fills the width."""
    parts, y = [], 0.0
    for work, said, unit in BARS:
        y += ROW
        parts.append(text(0, y, said, bold=True))
        most = max(one[work][unit] for one in result["contestants"])
        for one in result["contestants"]:
            y += ROW
            length = (WIDTH - LABEL - 70) * one[work][unit] / most
            colour = OURS if one["name"] == "trueup" else THEIRS
            parts.append(text(LABEL - 10, y, one["name"], anchor="end"))
            parts.append(f'<rect x="{LABEL}" y="{y - 13:g}" width="{length:.1f}" height="16" rx="3" fill="{colour}"/>')
            parts.append(text(LABEL + length + 8, y, f"{one[work][unit]:,}"))
        y += ROW / 2
    return svg(y, "trueup beside other job queues", parts)


def growth(result: Mapping[str, Mapping[str, float]]) -> str:
    """A row for each thing that has grown, with a dot for each step: how many times as long it takes. Those above the goal are named."""
    parts = [*_scale(len(result))]
    for number, (name, ratios) in enumerate(result.items()):
        y = (number + 2) * ROW
        parts.append(text(LABEL - 10, y + 4, name, anchor="end"))
        for step in STEPS:
            if step in ratios:
                colour = OURS if ratios[step] <= GOAL else "#c2410c"
                said = f"{step}: {ratios[step]:.2f}"
                parts.append(
                    f'<circle cx="{_at(ratios[step]):.1f}" cy="{y}" r="5" fill="{colour}" fill-opacity="0.7"><title>{said}</title></circle>'
                )
        slow = ", ".join(f"{step} {ratios[step]:.2g}×" for step in STEPS if ratios.get(step, 0) > GOAL)
        parts.append(text(WIDTH, y + 4, slow, anchor="end"))
    return svg((len(result) + 2.5) * ROW, "what becomes slower as everything grows", parts)


def _scale(rows: int) -> Iterator[str]:
    bottom = (rows + 1.7) * ROW
    for times in (0.5, 1, GOAL, 2, 4, WORST):
        dash = ' stroke-dasharray="4 4"' if times == GOAL else ""
        yield f'<line x1="{_at(times):.1f}" y1="{ROW}" x2="{_at(times):.1f}" y2="{bottom:.1f}" stroke="{LINE}" stroke-opacity="0.4"{dash}/>'
        yield text(_at(times), ROW - 8, f"{times:g}×", anchor="middle")


def _at(ratio: float) -> float:
    """Twice as long is as far to the right as half is to the left."""
    place = log(min(max(ratio, 0.5), WORST) / 0.5) / log(WORST / 0.5)
    return LABEL + 15 + (WIDTH - LABEL - 155) * place


PLOTS = {"peers": peers, "growth": growth}


def drawn() -> Iterator[tuple[Path, str]]:
    """Each file, and what belongs in it."""
    for name, draw in PLOTS.items():
        yield ASSETS / f"{name}.svg", draw(json.loads((RESULTS / f"{name}.json").read_text()))


def main() -> None:
    for path, content in drawn():
        path.write_text(content)


if __name__ == "__main__":
    main()
