-- Locks the catch-all partition first, which is scanned while a day is attached: readers of the whole history keep it open for long, and
-- finishing a job does not need it as long as the days are created in time.
lock table {schema}.{rest} in access exclusive mode;
