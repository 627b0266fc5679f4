-- One planner at a time for the fleet, without waiting; the lock goes with the transaction.
select pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0));
