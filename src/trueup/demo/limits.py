"""The limits that `jobs` declares and `proof` checks."""

REPORTS_AT_ONCE = 2
PINGS_PER_SECOND = 20
