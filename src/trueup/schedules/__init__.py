"""WHEN: schedules as values, without a database and without a clock.

A schedule says when through `next_after`; `misfire` and `overlap` decide about a due tick.
"""

from __future__ import annotations

from trueup.schedules.cron import Cron
from trueup.schedules.interval import Every
from trueup.schedules.once import Once
from trueup.schedules.when import When
from trueup.schedules.yearly import Yearly, yearly

__all__ = ["Cron", "Every", "Once", "When", "Yearly", "yearly"]
