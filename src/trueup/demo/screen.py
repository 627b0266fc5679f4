"""What the demo shows: a live picture on a terminal, plain lines elsewhere. Story lines stay, the picture is redrawn below."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trueup.demo.books import Kind, Snapshot
from trueup.demo.fleet import Condition, Worker
from trueup.demo.proof import Check

REDRAW_EVERY = 0.2  # seconds
LINE_EVERY = 2.0  # seconds between the plain lines about progress
STYLES = {
    Condition.WORKING: "green",
    Condition.KILLED: "bold red",
    Condition.FROZEN: "bold cyan",
    Condition.STOPPED: "dim",
}


class Screen(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def title(self, text: str) -> None: ...

    def say(self, text: str, style: str = "") -> None:
        """A line of the story, with the time since the start."""

    def due(self) -> bool:
        """Whether it is time for the next picture."""

    def show(self, snapshot: Snapshot, workers: Sequence[Worker]) -> None:
        """How things stand."""

    def proof(self, checks: Sequence[Check]) -> None: ...

    def conclude(self, text: str, style: str) -> None:
        """The last word."""


class _Base:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._start = time.monotonic()
        self._shown_at = float("-inf")
        self._every = REDRAW_EVERY

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def due(self) -> bool:
        return time.monotonic() - self._shown_at >= self._every

    def _mark(self, check: Check) -> str:
        if self.console.options.ascii_only:
            return "ok" if check.holds else "NO"
        return "✓" if check.holds else "✗"


class PlainScreen(_Base):
    """For logs and pipes: no colour, no width, nothing redrawn."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._every = LINE_EVERY

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def title(self, text: str) -> None:
        self._print(text)

    def say(self, text: str, style: str = "") -> None:
        self._print(f"{self.elapsed:6.1f} s  {text}")

    def show(self, snapshot: Snapshot, workers: Sequence[Worker]) -> None:
        self._shown_at = time.monotonic()
        counts = _sum(snapshot.kinds)
        in_hand = _in_hand(snapshot, workers)
        hands = "  ".join(
            f"{worker.name} {in_hand[worker.name] if worker.condition is Condition.WORKING else worker.condition}"
            for worker in workers
        )
        self._print(
            f"{self.elapsed:6.1f} s  queued {counts.queued:,}  running {counts.running:,}  done {counts.done:,}  "
            f"dead {counts.dead:,}  cancelled {counts.cancelled:,}  in hand: {hands}"
        )

    def proof(self, checks: Sequence[Check]) -> None:
        for check in checks:
            self._print(f"{self._mark(check)} {check.claim}: {check.found}")

    def conclude(self, text: str, style: str) -> None:
        self._print(text)

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveScreen(_Base):
    """For terminals."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def title(self, text: str) -> None:
        self.console.print(Text(text, "bold"))

    def say(self, text: str, style: str = "") -> None:
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_column(justify="right", width=6, style="dim")
        line.add_column()
        line.add_row(f"{self.elapsed:.1f} s", Text(text, style))
        self.console.print(line)

    def show(self, snapshot: Snapshot, workers: Sequence[Worker]) -> None:
        self._shown_at = time.monotonic()
        self._live.update(_picture(snapshot, workers), refresh=True)

    def proof(self, checks: Sequence[Check]) -> None:
        self._live.stop()
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        for check in checks:
            style = "green" if check.holds else "bold red"
            table.add_row(
                Text(f" {self._mark(check)}", style), check.claim, Text(check.found, "" if check.holds else style)
            )
        self.console.print("", table, "", sep="\n")

    def conclude(self, text: str, style: str) -> None:
        self._live.stop()
        self.console.print(Text(text, style), soft_wrap=True)


def make_screen(plain: bool | None) -> PlainScreen | LiveScreen:
    console = Console(highlight=False)
    if plain is None:
        plain = not console.is_terminal or console.is_dumb_terminal
    return PlainScreen(Console(no_color=True, force_terminal=False)) if plain else LiveScreen(console)


def _picture(snapshot: Snapshot, workers: Sequence[Worker]) -> RenderableType:
    tables = Table.grid(padding=(0, 4, 0, 0))
    tables.add_row(_kinds(snapshot.kinds), _workers(snapshot, workers))
    return Group("", _bar(snapshot), "", tables)


def _bar(snapshot: Snapshot) -> RenderableType:
    line = Table.grid(padding=(0, 2, 0, 1))
    line.add_row(
        ProgressBar(total=max(snapshot.asked, 1), completed=snapshot.ended, width=60, finished_style="green"),
        f"{snapshot.ended:,} of {snapshot.asked:,} jobs have ended" if snapshot.asked else "no jobs yet",
    )
    return line


def _kinds(kinds: Sequence[Kind]) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="dim", show_footer=True, footer_style="bold")
    total = _sum(kinds)
    table.add_column("kind", "all", width=12)
    for name in ("queued", "running", "done", "dead", "cancelled"):
        table.add_column(name, f"{getattr(total, name):,}", justify="right", min_width=7)
    for kind in kinds:
        table.add_row(
            kind.name,
            _count(kind.queued),
            _count(kind.running, "yellow"),
            _count(kind.done, "green"),
            _count(kind.dead, "red"),
            _count(kind.cancelled, "magenta"),
        )
    return table


def _workers(snapshot: Snapshot, workers: Sequence[Worker]) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("worker")
    table.add_column("", width=8)
    table.add_column("in hand", justify="right")
    table.add_column("ended", justify="right", min_width=6)
    in_hand = _in_hand(snapshot, workers)
    for worker in workers:
        ended = sum(snapshot.finished.get(holder, 0) for holder in worker.holders)
        table.add_row(
            worker.name,
            Text(worker.condition, STYLES[worker.condition]),
            _count(in_hand[worker.name], "yellow"),
            _count(ended, "green"),
        )
    return table


def _count(number: int, style: str = "") -> Text:
    return Text(f"{number:,}", style) if number else Text("0", "dim")


def _sum(kinds: Sequence[Kind]) -> Kind:
    columns = [(kind.asked, kind.queued, kind.running, kind.done, kind.dead, kind.cancelled) for kind in kinds]
    return (
        Kind("all", *(sum(column) for column in zip(*columns, strict=True)))
        if columns
        else Kind("all", 0, 0, 0, 0, 0, 0)
    )


def _in_hand(snapshot: Snapshot, workers: Sequence[Worker]) -> dict[str, int]:
    """By worker; what a killed process left counts until it is taken over."""
    return {
        worker.name: sum(holder.jobs for holder in snapshot.holders if holder.pid in worker.pids) for worker in workers
    }
