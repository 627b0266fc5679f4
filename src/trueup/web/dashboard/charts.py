"""Charts as SVG, drawn here: shapes stretch with the page, numbers are text beside them. Colours are classes of the style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

WIDTH, HEIGHT = 720, 120


def bars(
    label: str,
    begins: Sequence[datetime],
    series: Sequence[tuple[str, str, Sequence[float]]],
    *,
    height: int = HEIGHT,
    unit: str = "",
) -> Markup:
    """Stacked bars. `series` are (name, class, values), from the bottom up."""
    totals = [sum(values[place] for _, _, values in series) for place in range(len(begins))]
    top = _top(max(totals, default=0.0))
    slot = WIDTH / max(1, len(begins))
    drawn: list[Markup] = []
    for place, begin in enumerate(begins):
        base = float(height)
        parts: list[Markup] = []
        for _, kind, values in series:
            tall = values[place] / top * height
            if tall <= 0:
                continue
            tall = max(tall, 1.0)
            base -= tall
            parts.append(_rect(place * slot + slot * 0.1, base, slot * 0.8, tall, kind))
        told = ", ".join(f"{_number(values[place])}{unit} {name}" for name, _, values in series if values[place])
        title = f"{begin:%H:%M} UTC: {told or 'nothing'}"
        drawn.append(
            Markup('<g class="slot"><title>{}</title>{}{}</g>').format(
                title, _rect(place * slot, 0, slot, height, "hit"), Markup("").join(parts)
            )
        )
    return _framed(label, begins, top, height, Markup("").join(drawn), unit)


def line(
    label: str,
    begins: Sequence[datetime],
    values: Sequence[float],
    kind: str,
    *,
    height: int = HEIGHT,
    unit: str = "",
) -> Markup:
    """An area under a line."""
    top = _top(max(values, default=0.0))
    slot = WIDTH / max(1, len(begins) - 1)
    points = [(place * slot, height - value / top * (height - 2)) for place, value in enumerate(values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = Markup('<polygon class="area {}" points="0,{} {} {},{}"/>').format(kind, height, path, WIDTH, height)
    stroke = Markup('<polyline class="line {}" points="{}"/>').format(kind, path)
    hits = Markup("").join(
        Markup('<g class="slot"><title>{}</title>{}</g>').format(
            f"{begin:%H:%M} UTC: {_number(value)}{unit}", _rect(place * slot - slot / 2, 0, slot, height, "hit")
        )
        for place, (begin, value) in enumerate(zip(begins, values, strict=True))
    )
    return _framed(label, begins, top, height, area + stroke + hits, unit)


def spark(values: Sequence[float], kind: str, label: str) -> Markup:
    """A small line without numbers."""
    top = max([*values, 1.0])
    slot = 100 / max(1, len(values) - 1)
    path = " ".join(f"{place * slot:.1f},{23 - value / top * 21:.1f}" for place, value in enumerate(values))
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polygon class="area {}" points="0,24 {} 100,24"/><polyline class="line {}" points="{}"/></svg>'
    ).format(label, kind, path, kind, path)


def shares(label: str, parts: Sequence[tuple[str, str, float]]) -> Markup:
    """One bar, divided. `parts` are (name, class, value)."""
    total = sum(value for _, _, value in parts) or 1.0
    drawn, at = Markup(""), 0.0
    for name, kind, value in parts:
        if value > 0:
            wide = value / total * 100
            drawn += Markup("<g><title>{}</title>{}</g>").format(
                f"{_number(value)} {name}", _rect(at, 0, max(0.4, wide), 8, kind)
            )
            at += wide
    return Markup(
        '<svg class="shares" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(label, drawn)


def timeline(label: str, since: datetime, until: datetime, marks: Sequence[tuple[datetime, str, str]]) -> Markup:
    """Moments on a line. `marks` are (moment, class, title)."""
    drawn = Markup("").join(
        Markup("<g><title>{}</title>{}</g>").format(title, _rect(_place(moment, since, until) - 1, 3, 2.5, 14, kind))
        for moment, kind, title in marks
        if since <= moment <= until
    )
    return Markup(
        '<svg class="ticks" viewBox="0 0 {} 20" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<line class="axis" x1="0" x2="{}" y1="10" y2="10"/>{}</svg>'
    ).format(WIDTH, label, WIDTH, drawn)


def spans(label: str, since: datetime, until: datetime, rows: Sequence[tuple[datetime, datetime, str, str]]) -> Markup:
    """Spans of time on a line. `rows` are (begin, end, class, title)."""
    drawn = Markup("")
    for begin, end, kind, title in rows:
        left = _place(max(begin, since), since, until)
        right = _place(min(end, until), since, until)
        drawn += Markup("<g><title>{}</title>{}</g>").format(title, _rect(left, 0, max(2.0, right - left), 24, kind))
    return Markup(
        '<svg class="spans" viewBox="0 0 {} 24" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>'
    ).format(WIDTH, label, _rect(0, 0, WIDTH, 24, "ground"), drawn)


def axis(since: datetime, until: datetime, count: int = 5) -> list[str]:
    """Readings of the clock at even distances, for below a chart."""
    style = "%H:%M" if until - since <= timedelta(hours=36) else "%b %d"
    step = (until - since) / max(1, count - 1)
    shown = [
        *(since + step * place for place in range(count - 1)),
        until,
    ]  # a sum could leave Python's calendar at the end
    return [f"{moment.astimezone(UTC):{style}}" for moment in shown]


def _framed(label: str, begins: Sequence[datetime], top: float, height: int, drawn: Markup, unit: str) -> Markup:
    times = axis(begins[0], begins[-1]) if begins else []
    labels = Markup("").join(Markup("<span>{}</span>").format(each) for each in times)
    lines = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, y, y) for y in (0.5, height / 2)
    )
    return Markup(
        '<div class="chart"><span class="top">{}{}</span>'
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>'
        '<div class="axis" aria-hidden="true">{}</div></div>'
    ).format(_number(top), unit, WIDTH, height, label, lines, drawn, labels)


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    return Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.2f}" height="{:.1f}"/>').format(
        kind, x, y, width, height
    )


def _place(moment: datetime, since: datetime, until: datetime) -> float:
    return (moment - since) / (until - since) * WIDTH


def _top(value: float) -> float:
    """The next round number: 1, 2 or 5 with zeros."""
    if value <= 0:
        return 1.0
    size = 1.0
    while size * 10 <= value:
        size *= 10
    while size > value:
        size /= 10
    return next(size * step for step in (1, 2, 3, 5, 8, 10) if size * step >= value)


def _number(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.0f}k" if value >= 100_000 else f"{value / 1000:,.1f}k"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
