"""Runs one sweep, scan or dry run by hand: in this process, at once, whatever its interval.

A sweep by hand is a sweep like those of workers, under a holder of its own: rows are shared with workers that sweep at the
same time, and taken over from it when it dies. Cancelled, it claims nothing more, gives back what it has not begun, and lets
handlers end within `drain_for`; cancelled once more, it interrupts them, and their rows go back.
"""

from __future__ import annotations

from trueup.operate.runs.dry import dry_run, dry_scan, shown, would
from trueup.operate.runs.leased import Bounds
from trueup.operate.runs.orderly import LAST_WORD
from trueup.operate.runs.results import DryRun, Progress, Run
from trueup.operate.runs.rows import MAX_COUNTED, looking, waiting
from trueup.operate.runs.scanning import scan_now
from trueup.operate.runs.sweeping import proposed_kind, sweep

__all__ = [
    "LAST_WORD",
    "MAX_COUNTED",
    "Bounds",
    "DryRun",
    "Progress",
    "Run",
    "dry_run",
    "dry_scan",
    "looking",
    "proposed_kind",
    "scan_now",
    "shown",
    "sweep",
    "waiting",
    "would",
]
