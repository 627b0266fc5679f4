-- The same as lock, but waits for another housekeeper, as long as lock_timeout allows. No other session queues behind it.
select pg_advisory_xact_lock(hashtextextended(%(name)s, 0));
