-- The database's time at this very moment, not at the transaction's start: whoever waited for a row looks at the clock afterwards.
select coalesce(%(now)s::timestamptz, clock_timestamp());
