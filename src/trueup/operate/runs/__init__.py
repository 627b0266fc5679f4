"""Runs one sweep, scan or dry run by hand: in this process, at once, whatever its interval.

A sweep by hand is a sweep like those of workers, under a holder of its own: rows are shared with workers that sweep at the
same time, and taken over from it when it dies. Cancelled, it claims nothing more, gives back what it has not begun, and lets
handlers end within `drain_for`; cancelled once more, it interrupts them, and their rows go back.
"""

from __future__ import annotations

from trueup.operate.runs.dry import dry_run as dry_run
from trueup.operate.runs.dry import dry_scan as dry_scan
from trueup.operate.runs.leased import Bounds as Bounds
from trueup.operate.runs.results import DryRun as DryRun
from trueup.operate.runs.results import Progress as Progress
from trueup.operate.runs.results import Run as Run
from trueup.operate.runs.rows import MAX_COUNTED as MAX_COUNTED
from trueup.operate.runs.rows import looking as looking
from trueup.operate.runs.rows import waiting as waiting
from trueup.operate.runs.scanning import scan_now as scan_now
from trueup.operate.runs.sweeping import sweep as sweep
