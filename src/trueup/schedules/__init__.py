"""Schedules as values, without a database or a clock. A schedule's `next_after` says when ticks are due; `misfire` and `overlap`
decide about a due tick.
"""

from __future__ import annotations

from trueup.schedules.cron import Cron
from trueup.schedules.when import Every, Once, When
from trueup.schedules.yearly import Yearly, yearly

__all__ = ["Cron", "Every", "Once", "When", "Yearly", "yearly"]
