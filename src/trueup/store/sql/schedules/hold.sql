-- Locks one schedule's row until the transaction ends, waiting for whoever has it. Index: schedules_pkey.
select name from {schema}.schedules where name = %(name)s for update;
