-- Declared reconcilers, and how many of their rows are held, rest, or are quarantined. Reads all records of rows; for
-- people, not for workers.
select coalesce(c.name, r.reconciler) as name, coalesce(c.state = 'paused' or c.paused_until > coalesce(%(now)s::timestamptz, now()), false) as paused,
       c.last_swept_at, c.last_error, coalesce(r.held, 0) as held, coalesce(r.resting, 0) as resting,
       coalesce(r.quarantined, 0) as quarantined, coalesce(r.discarded, 0) as discarded
  from {schema}.reconcilers as c
  full join (select reconciler, count(*) filter (where state = 'held') as held, count(*) filter (where state = 'resting') as resting,
                    count(*) filter (where state = 'quarantined') as quarantined, count(*) filter (where state = 'discarded') as discarded
               from {schema}.rows group by reconciler) as r on r.reconciler = c.name
 order by 1;
