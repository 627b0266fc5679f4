-- Locks one schedule's row until the transaction ends, and waits for other transactions. Index: schedules_pkey.
select name from {schema}.schedules where name = %(name)s for update;
