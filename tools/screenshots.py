"""`python -m tools.screenshots`: pictures of the dashboard and of a terminal over a filled database, for README and docs.

The dashboard: light and dark at 1280 pixels, and a phone. Every picture is reduced to a palette, so that all of them together stay
small. The terminal: a command as people see it, drawn as SVG in the reader's own monospaced font.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from tests.support.chromium import launched
from tests.support.database import TestServer
from tests.web.dashboard.filled import fill, shop
from tests.web.dashboard.serving import served
from trueup.web import dashboard

IMAGES = Path(__file__).parents[1] / "docs" / "images"
DESKTOP, PHONE = (1280, 860), (420, 860)
COLOURS = 256
Colour = tuple[int, int, int]
COLUMNS = 100  # of the terminal
TERMINALS = (("status", ("status",)),)  # name, arguments of trueup
CELL = (8.4, 19)  # pixels of one character
PAPER, INK, FAINT = "#1e222a", "#d7dae0", "#8b93a1"
VISIBLE = 5  # of 255: two colours that differ by no more look the same
# name, address, size, dark
PICTURES = (
    ("overview", "/shop", DESKTOP, False),
    ("overview-dark", "/shop", DESKTOP, True),
    ("overview-phone", "/shop", PHONE, False),
    ("jobs", "/shop/jobs?state=dead", DESKTOP, False),
    ("jobs-phone", "/shop/jobs?state=dead", PHONE, True),
    ("job-dark", "/shop/jobs/{dead}", DESKTOP, True),
    ("reconcilers", "/shop/reconcilers", DESKTOP, False),
    ("schedules-dark", "/shop/schedules", DESKTOP, True),
    ("fleet", "/shop/fleet", DESKTOP, False),
    ("recovery-dark", "/shop/recovery", DESKTOP, True),
    ("audit", "/shop/audit", DESKTOP, False),
    ("queues", "/shop/queues", DESKTOP, False),
    ("alerts-dark", "/shop/alerts", DESKTOP, True),
)
MORE = (  # to look at, not to keep
    ("reconciler", "/shop/reconcilers/ship_paid_orders", DESKTOP, False),
    ("row", "/shop/reconcilers/ship_paid_orders/row?key=70311", DESKTOP, False),
    ("schedule", "/shop/schedules/refresh_rates", DESKTOP, False),
    ("schedule-dark", "/shop/schedules/refresh_rates{backfill}", DESKTOP, True),
    ("schedule-phone", "/shop/schedules/refresh_rates{backfill}", PHONE, False),
    ("reconcilers-phone", "/shop/reconcilers", PHONE, False),
    ("schedules-phone", "/shop/schedules", PHONE, False),
    ("fleet-phone", "/shop/fleet", PHONE, True),
    ("recovery-phone", "/shop/recovery", PHONE, False),
    ("job-phone", "/shop/jobs/{dead}", PHONE, False),
    ("queues-phone", "/shop/queues", PHONE, False),
    ("alerts-phone", "/shop/alerts", PHONE, True),
    ("alerts", "/shop/alerts", DESKTOP, False),
    ("queues-dark", "/shop/queues", DESKTOP, True),
    ("audit-phone", "/shop/audit", PHONE, True),
    ("audit-dark", "/shop/audit", DESKTOP, True),
)


def main(folder: Path = IMAGES, *, whole: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="trueup-pg-") as directory,
        TestServer(Path(directory)) as server,
        server.database() as url,
    ):
        fill(url)
        for name, arguments in TERMINALS:
            (folder / f"{name}.svg").write_text(terminal(arguments, url), "utf-8")
        now = datetime.now(UTC)
        span = [f"{now - timedelta(hours=hours):%Y-%m-%dT%H:%M}" for hours in (12, 8)]
        backfill = f"?start={span[0]}&end={span[1]}"
        with served(dashboard.asgi({"shop": shop(url)}, closes=True)) as address, launched() as browser:
            for name, path, (width, height), dark in (*PICTURES, *(MORE if whole else ())):
                page = browser.new_page(
                    viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
                )
                page.goto(address + "/shop/jobs?state=dead&kind=charge_card")
                dead = page.locator("td a.name").first.get_attribute("href").rpartition("/")[2]  # type: ignore[union-attr]
                page.goto(address + path.format(dead=dead, backfill=backfill))
                page.wait_for_selector("[data-is=live]")
                picture = page.screenshot(full_page=whole)
                page.close()
                (folder / f"{name}.png").write_bytes(_small(picture))


def terminal(arguments: tuple[str, ...], url: str) -> str:
    """What the command shows on a terminal, as SVG."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    command = [Path(sys.executable).with_name("trueup"), *arguments]
    environment = {**os.environ, "TRUEUP_DATABASE_URL": url, "TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        written = b""
        try:
            while block := os.read(ours, 65536):
                written += block
        except OSError:  # Linux reports the end of a terminal so
            pass
    os.close(ours)
    lines = Console(width=COLUMNS).render_lines(Text.from_ansi(written.decode().replace("\r\n", "\n").rstrip()))
    prompt = [Segment(f"$ {' '.join(('trueup', *arguments))}", Style(bold=True))]
    return drawn([prompt, [], *lines])


def drawn(lines: list[list[Segment]]) -> str:
    """Lines of a terminal. Each word has its place and width, so that columns stay columns in any font."""
    (width, height), texts = CELL, []
    for row, line in enumerate(lines, 1):
        column = 0
        for segment in line:
            for word in re.finditer(r"\S+", segment.text):
                x, y = (column + word.start() + 2) * width, (row + 0.75) * height
                style = segment.style or Style()
                colour = FAINT if style.dim else style.color.get_truecolor().hex if style.color else INK
                weight = ' font-weight="bold"' if style.bold else ""
                texts.append(
                    f'<text x="{x:.1f}" y="{y:.1f}" textLength="{len(word[0]) * width:.1f}" lengthAdjust="spacingAndGlyphs" '
                    f'fill="{colour}"{weight}>{escape(word[0])}</text>'
                )
            column += segment.cell_length
    size = f"{(COLUMNS + 4) * width:.0f} {(len(lines) + 2) * height:.0f}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="ui-monospace, monospace" font-size="14">'
    return "\n".join((head, f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>', *texts, "</svg>\n"))


def _small(png: bytes) -> bytes:
    """With the most frequent colours that differ visibly, so that surfaces and the smallest dot keep theirs; others take the nearest."""
    with Image.open(io.BytesIO(png)) as opened:
        image = opened.convert("RGB")
    counted: list[tuple[int, Any]] = image.getcolors(1 << 24) or []
    chosen: list[Colour] = []
    for _, colour in sorted(counted, reverse=True):
        if len(chosen) < COLOURS and all(_apart(colour, other) > VISIBLE for other in chosen):
            chosen.append(colour)
    places = {colour: min(range(len(chosen)), key=lambda at: _apart(colour, chosen[at])) for _, colour in counted}
    small = Image.new("P", image.size)
    small.putpalette([part for colour in chosen for part in colour])
    small.putdata([places[colour] for colour in zip(*[iter(image.tobytes())] * 3, strict=True)])
    written = io.BytesIO()
    small.save(written, "PNG", optimize=True)
    return written.getvalue()


def _apart(one: Colour, other: Colour) -> int:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), whole=len(sys.argv) > 2)
