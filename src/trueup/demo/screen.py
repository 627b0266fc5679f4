"""The demo's output: a live picture on a terminal, plain lines elsewhere. Lines of the story stay; the picture is redrawn below
them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trueup.demo.fleet import Condition
from trueup.demo.proof import Check
from trueup.demo.view import View, WorkerView, hours

REDRAW_EVERY = 0.2  # seconds
LINE_EVERY = 5.0  # seconds between the plain lines about progress
WIDEST_BAR = 60
STYLES = {
    Condition.WORKING: "green",
    Condition.KILLED: "bold red",
    Condition.FROZEN: "bold cyan",
    Condition.STOPPED: "dim",
}


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
        """Whether it is time for the next picture."""
        return time.monotonic() - self._shown_at >= self._every

    def _mark(self, check: Check) -> str:
        if self.console.options.ascii_only:
            return "ok" if check.holds else "NO"
        return "✓" if check.holds else "✗"

    def _write(self, text: str, style: str = "") -> None:
        """Write the text without markup or wrapping."""
        self.console.print(Text(self._shown(text), style), soft_wrap=True)

    def _shown(self, text: str) -> str:
        if not self.console.options.ascii_only:
            return text
        return text.replace("≤", "<=").replace("≥", ">=").encode("ascii", "replace").decode()


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
        self._write(text)

    def say(self, text: str, style: str = "") -> None:
        """A line of the story, with the time since the start."""
        self._write(f"{self.elapsed:6.1f} s  {text}")

    def show(self, view: View) -> None:
        self._shown_at = time.monotonic()
        messages = view.messages
        hands = "  ".join(f"{worker.name} {_hand(worker)}" for worker in view.workers)
        late = f"  {hours(view.front.lateness)} late" if view.front else ""
        self._write(
            f"{self.elapsed:6.1f} s  delivered {messages.completed:,} of {messages.due:,}  {view.per_second:.0f}/s{late}  "
            f"failed {messages.failed:,}  dead {messages.dead:,}  in hand: {hands}"
        )

    def proof(self, checks: Sequence[Check]) -> None:
        for check in checks:
            self._write(
                f"{self._mark(check)} {check.claim}: expected {check.expected}, found {check.found} ({check.source})"
            )

    def hand_over(self, title: str) -> bool:
        """Whether a program may write to the terminal now; the live picture is gone then, and its place is below the title."""
        self._write(title)
        return False

    def quote(self, text: str) -> None:
        """Show a program's output, or text to copy, without wrapping lines."""
        self._write(text)

    def conclude(self, text: str, style: str) -> None:
        self._write(text)


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
        line.add_row(f"{self.elapsed:.1f} s", Text(self._shown(text), style))
        self.console.print(line)

    def show(self, view: View) -> None:
        self._shown_at = time.monotonic()
        self._live.update(_picture(view, min(WIDEST_BAR, self.console.width - 34)), refresh=True)

    def proof(self, checks: Sequence[Check]) -> None:
        self._live.stop()
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        for title in ("", "proof", "expected", "found", "in"):
            table.add_column(title)
        for check in checks:
            style = "green" if check.holds else "bold red"
            table.add_row(
                Text(f" {self._mark(check)}", style),
                Text(self._shown(check.claim)),
                Text(self._shown(check.expected)),
                Text(self._shown(check.found), "" if check.holds else style),
                Text(check.source, "dim"),
            )
        self.console.print("", table, "", sep="\n")

    def hand_over(self, title: str) -> bool:
        self._live.stop()
        self._write(f"\n{title}", "dim")
        return True

    def quote(self, text: str) -> None:
        self._live.stop()
        self._write(text)

    def conclude(self, text: str, style: str) -> None:
        self._live.stop()
        self.console.print(Text(self._shown(text), style))


Screen: TypeAlias = PlainScreen | LiveScreen


def make_screen(plain: bool | None) -> Screen:
    console = Console(highlight=False)
    if plain is None:
        plain = not console.is_terminal or console.is_dumb_terminal
    return PlainScreen(Console(no_color=True, force_terminal=False)) if plain else LiveScreen(console)


def _picture(view: View, width: int) -> RenderableType:
    tables = Table.grid(padding=(0, 5, 0, 1))
    tables.add_row(_messages(view), _workers(view.workers), _receiver(view))
    return Group("", _bar(view, width), _pace(view), "", tables)


def _bar(view: View, width: int) -> RenderableType:
    messages = view.messages
    line = Table.grid(padding=(0, 2, 0, 1))
    line.add_row(
        ProgressBar(total=max(messages.due, 1), completed=messages.ended, width=width, finished_style="green"),
        f"{messages.completed:,} of {messages.due:,} delivered",
    )
    return line


def _pace(view: View) -> RenderableType:
    if view.front is None:
        return Text(" nothing sent yet", "dim")
    text = Text(f" {view.per_second:.0f} a second; now in {view.front.timezone}, where it is ", "dim")
    return text.append(f"{hours(view.front.lateness)} late", "yellow")


def _messages(view: View) -> RenderableType:
    messages = view.messages
    table = _column("messages")
    for name, count, style in (
        ("waiting", messages.pending, ""),
        ("being sent", messages.processing, "yellow"),
        ("delivered", messages.completed, "green"),
        ("failed, again soon", messages.failed, "magenta"),
        ("dead", messages.dead, "red"),
    ):
        table.add_row(name, _count(count, style))
    return table


def _workers(workers: Sequence[WorkerView]) -> RenderableType:
    table = _column("worker", "in hand")
    for worker in workers:
        name = Text(f"{worker.name} ").append(worker.condition, STYLES[worker.condition])
        table.add_row(name, _count(worker.in_hand, "yellow"))
    return table


def _receiver(view: View) -> RenderableType:
    table = _column("receiver", Text("up", "green") if view.receiver_is_up else Text("down", "bold red"))
    table.add_row("has", _count(view.received, "green"))
    table.add_row("came again", _count(view.again))
    if view.resting:
        table.add_row(Text("no worker sends", "magenta"), "")
    return table


def _column(title: str, beside: str | Text = "") -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(title)
    table.add_column(beside, justify="right", min_width=5)
    return table


def _hand(worker: WorkerView) -> str:
    return str(worker.in_hand) if worker.condition is Condition.WORKING else worker.condition


def _count(number: int, style: str = "") -> Text:
    return Text(f"{number:,}", style) if number else Text("0", "dim")
