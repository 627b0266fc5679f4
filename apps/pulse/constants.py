"""The numbers of the application, all of them here."""

from __future__ import annotations

from datetime import timedelta

HEALTH_CHECK_BATCH_SIZE = 100
HEALTH_CHECK_CONCURRENCY = 5
HEALTH_CHECK_STALE_MINUTES = 10

REPORT_GENERATION_BATCH_SIZE = 50
REPORT_GENERATION_CONCURRENCY = 3

MAX_RETRIES = 3  # after the first try
BASE_DELAY_MS = 1000
BACKOFF_MULTIPLIER = 2
MAX_DELAY_MS = 10000

BRIEFING_BATCH_SIZE = 100
DEFAULT_BRIEFING_HOUR = 8  # on the user's own clocks

CLEANUP_BATCH_SIZE = 1000
MESSAGES_KEPT_DAYS = 30

LOCK_TTL = timedelta(seconds=60)  # renewed at a third; so long a holder that died blocks the next one
CHECK_TIMEOUT = timedelta(minutes=1)  # for one project or one report; retries are within it
