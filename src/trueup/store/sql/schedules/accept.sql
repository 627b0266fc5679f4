-- These schedules are refused no longer.
delete from {schema}.schedule_refusals where name = any(%(names)s::text[]);
