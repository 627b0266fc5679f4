-- Makes rows of a day known to publications. Waits only briefly for the lock; the next pass tries again.
set local lock_timeout = '100ms';
alter table {schema}.{day} replica identity full;
