-- A day of history past its retention. Waits only briefly for the lock; the next pass tries again.
set local lock_timeout = '2s';
drop table if exists {schema}.{day};
