-- The catch-all partition, which is searched while a day is attached, first: it is what readers of the whole history have open for long,
-- and nobody who finishes a job needs it where the days are made in time.
lock table {schema}.{rest} in access exclusive mode;
