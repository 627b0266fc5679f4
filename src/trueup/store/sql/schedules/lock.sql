-- One planner at a time for the fleet, without waiting; the lock ends with the transaction.
select pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0));
