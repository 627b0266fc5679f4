-- The database's time, and how many seconds there are until the next tick of anything; null when there is none. Index: schedules_due.
select coalesce(%(now)s::timestamptz, now()) as now,
       (select extract(epoch from min(next_due_at) - coalesce(%(now)s::timestamptz, now()))::float8 from {schema}.schedules where state = 'active') as next_in_s;
