-- The holders of rows of a reconciler, and a few of their keys. Index: rows_pkey.
select r.holder, w.host, w.pid, count(*) as rows, count(*) filter (where r.due_at <= {now}) as expired, min(r.claimed_at) as claimed_at, max(r.due_at) as lease_until,
       (array_agg(r.key order by r.claimed_at, r.key))[1:%(limit)s] as keys
  from {schema}.rows as r left join {schema}.workers as w on w.holder = r.holder
 where r.reconciler = %(name)s and r.state = 'held'
 group by r.holder, w.host, w.pid
 order by min(r.claimed_at);
