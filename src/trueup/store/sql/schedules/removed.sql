-- Schedules that code had declared for these queues and does not declare any more.
select name from {schema}.schedules
 where origin = 'code' and state <> 'retired' and queue = any(%(queues)s::text[]) and name <> all(%(declared)s::text[])
 order by name;
