-- The database's current time, not the transaction's start: a transaction that waited for a lock reads the clock afterwards.
select coalesce(%(now)s::timestamptz, clock_timestamp());
