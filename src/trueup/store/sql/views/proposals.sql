-- What was proposed for rows in shadow mode, by kind, with the latest few of each. Reads all records of the reconciler's rows.
-- Index: rows_pkey.
select kind, count(*), array_agg(key) filter (where n <= %(limit)s), array_agg(proposed) filter (where n <= %(limit)s)
  from (select k.kind, r.key, p.proposed, row_number() over (partition by k.kind order by r.changed_at desc, r.key) as n
          from {schema}.rows as r
         cross join lateral (select r.proposed #>> array[]::text[] as proposed) as p
         cross join lateral (select coalesce(substring(p.proposed from '^To\(''[^'']*'''), substring(p.proposed from '^\w+'), '?') as kind) as k
         where r.reconciler = %(name)s and r.proposed is not null) as each_row
 group by kind
 order by count(*) desc, kind;
