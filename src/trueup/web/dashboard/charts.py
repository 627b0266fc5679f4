"""Charts as SVG, drawn here: shapes stretch with the page, numbers are text beside them. Colours are classes of the style sheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

from trueup.web.dashboard.formats import length

WIDTH, HEIGHT, LOW = 720, 120, 80
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
MAX_READINGS = 7  # times below a chart; more would touch on a phone
NEAR = 20  # per cent of the width: a reading at the very end begins or ends there, and would touch its neighbour
STEPS = (
    *(MINUTE * each for each in (1, 2, 5, 10, 15, 30)),
    *(HOUR * each for each in (1, 2, 3, 4, 6, 8, 12)),
    DAY,
    2 * DAY,
)
# The tops of charts of times: their halves can be read, too.
TIMES = (
    1,
    2,
    4,
    10,
    20,
    MINUTE,
    2 * MINUTE,
    4 * MINUTE,
    10 * MINUTE,
    20 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
)


def bars(
    label: str,
    begins: Sequence[datetime],
    series: Sequence[tuple[str, str, Sequence[float]]],
    step: timedelta,
) -> Markup:
    """Stacked bars, one for each `step`. `series` are (name, class, values), from the bottom up."""
    height = HEIGHT
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
        told = ", ".join(f"{_number(values[place])} {name}" for name, _, values in series if values[place])
        title = f"{begin:%H:%M} UTC: {told or 'nothing'}"
        drawn.append(
            Markup('<g class="slot"><title>{}</title>{}{}</g>').format(
                title, _rect(place * slot, 0, slot, height, "hit"), Markup("").join(parts)
            )
        )
    return _framed(label, axis(begins[0], begins[-1] + step), top, height, Markup("").join(drawn), _number)


def line(
    label: str,
    moments: Sequence[datetime],
    values: Sequence[float],
    kind: str,
    *,
    seconds: bool = False,
) -> Markup:
    """An area under a line through one value or more: numbers, or lengths of time in seconds."""
    height = LOW
    written: Callable[[float], str] = length if seconds else _number
    top = _top(max(values, default=0.0), seconds=seconds)
    since, until = moments[0], max(moments[-1], moments[0] + timedelta(seconds=1))
    slot = WIDTH / max(1, len(moments) - 1)
    placed = [(_place(moment, since, until), moment, value) for moment, value in zip(moments, values, strict=True)]
    path = " ".join(f"{x:.1f},{height - value / top * (height - 2):.1f}" for x, _, value in placed)
    area = Markup('<polygon class="area {}" points="0,{} {} {},{}"/>').format(kind, height, path, WIDTH, height)
    stroke = Markup('<polyline class="line {}" points="{}"/>').format(kind, path)
    hits = Markup("").join(
        Markup('<g class="slot"><title>{}</title>{}</g>').format(
            f"{moment:%H:%M} UTC: {written(value)}", _rect(x - slot / 2, 0, slot, height, "hit")
        )
        for x, moment, value in placed
    )
    return _framed(label, axis(since, until), top, height, area + stroke + hits, written)


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


def ticks(label: str, since: datetime, until: datetime, marks: Sequence[tuple[datetime, datetime]]) -> Markup:
    """Moments and spans on a line that is one of many: a single shape, a tenth of what `timeline` sends."""
    drawn = " ".join(
        f"M{_place(begin, since, until) - 1:.1f} 3h{2.5 + _place(end, since, until) - _place(begin, since, until):.1f}v14H"
        f"{_place(begin, since, until) - 1:.1f}z"
        for begin, end in marks
        if since <= begin <= until
    )
    return Markup(
        '<svg class="ticks" viewBox="0 0 {} 20" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<line class="axis" x1="0" x2="{}" y1="10" y2="10"/><path d="{}"/></svg>'
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


def axis(since: datetime, until: datetime, most: int = MAX_READINGS) -> Markup:
    """Round readings of the clock where they are, for below a chart: hours and minutes, and the day at midnight."""
    begin, end = since.timestamp(), until.timestamp()
    step = next((each for each in STEPS if (end - begin) / each <= most - 1), (end - begin) / (most - 1))
    moments = [step * count for count in range(int(-(-begin // step)), int(end // step) + 1)]
    near = step / (end - begin) * 100 < NEAR
    marks = Markup("").join(
        Markup('<text x="{:.2f}%" y="1em"{}>{}</text>').format(at, anchor, _reading(moment))
        for moment in moments
        for at in [(moment - begin) / (end - begin) * 100]
        for anchor in [_anchor(at)]
        if not (anchor and near)
    )
    return Markup('<svg class="axis" aria-hidden="true">{}</svg>').format(marks)


def _anchor(at: float) -> Markup:
    """The anchor of a text, so that none leaves the chart at its ends."""
    return Markup(' class="{}"').format("start" if at < 3 else "end") if at < 3 or at > 97 else Markup("")


def _reading(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):{'%b %d' if moment % DAY == 0 else '%H:%M'}}"


def _framed(
    label: str, times: Markup, top: float, height: int, drawn: Markup, written: Callable[[float], str]
) -> Markup:
    half = written(top / 2) if top > 1 or written is length else ""  # there is no half of a job
    lines = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, y, y)
        for y in (0.5, height / 2, height)
    )
    return Markup(
        '<div class="chart"><div class="plot"><span class="y">{}</span><span class="y">{}</span><span class="y">0</span>'
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>{}</div></div>'
    ).format(written(top), half, WIDTH, height, label, lines, drawn, times)


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    return Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.2f}" height="{:.1f}"/>').format(
        kind, x, y, width, height
    )


def _place(moment: datetime, since: datetime, until: datetime) -> float:
    return (moment - since) / (until - since) * WIDTH


def _top(value: float, *, seconds: bool = False) -> float:
    """The next round number, whose half can be read, too."""
    if value <= 0:
        return 1.0
    if seconds and 1 < value <= TIMES[-1]:
        return float(next(each for each in TIMES if each >= value))
    size = 1.0
    while size * 10 <= value:
        size *= 10
    while size > value:
        size /= 10
    return next(size * step for step in (1, 2, 4, 6, 8, 10) if size * step >= value)


def _number(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.0f}k" if value >= 100_000 else f"{value / 1000:,.1f}k"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
