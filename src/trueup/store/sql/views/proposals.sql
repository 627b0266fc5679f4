-- What was proposed for rows in shadow mode, by kind, with the latest few of each. Reads all that is known about the reconciler's rows.
-- Index: rows_pkey.
select kind, count(*), array_agg(key) filter (where n <= %(limit)s), array_agg(proposed) filter (where n <= %(limit)s)
  from (select p.kind, r.key, p.proposed, row_number() over (partition by p.kind order by r.changed_at desc, r.key) as n
          from {schema}.rows as r
         cross join lateral (select r.proposed #>> array[]::text[] as proposed, coalesce(substring(r.proposed #>> array[]::text[] from '^To\(''[^'']*'''),
                                                                               substring(r.proposed #>> array[]::text[] from '^\w+'), '?') as kind) as p
         where r.reconciler = %(name)s and r.proposed is not null) as each_row
 group by kind
 order by count(*) desc, kind;
