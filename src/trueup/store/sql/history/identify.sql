-- Sets the replica identity of a day, so that publications can carry its rows. Waits only briefly for the lock; the next pass tries again.
set local lock_timeout = '100ms';
alter table {schema}.{day} replica identity full;
