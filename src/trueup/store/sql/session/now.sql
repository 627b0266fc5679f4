-- The time that this transaction takes as now.
select coalesce(%(now)s::timestamptz, now());
