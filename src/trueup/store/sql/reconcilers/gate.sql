-- Whether a reconciler is known and may sweep now, and when it swept last. One that is not known may sweep. Also cheap signs of whether
-- there is anything to do: when the next row that rests, or whose lease ends, is due; whether any is quarantined; the table's
-- fingerprint; when a full walk ended, how many rows with records it passed, and the table's write counters then and now.
-- Index: reconcilers_pkey, rows_due, rows_set_aside.
select r.name is not null, coalesce(r.state = 'paused', false), extract(epoch from r.paused_until - {now})::float8, coalesce(r.pauses, 0),
       extract(epoch from {now} - r.last_swept_at)::float8, {now},
       (select extract(epoch from k.due_at - {now})::float8 from {schema}.rows as k
         where k.reconciler = %(name)s and k.state in ('held', 'resting') order by k.due_at, k.key limit 1),
       (select true from {schema}.rows as k where k.reconciler = %(name)s and k.state in ('quarantined', 'discarded')
         order by k.changed_at limit 1) is true,
       {sign},
       extract(epoch from {now} - r.walked_at)::float8, r.walked_past, r.walked_writes,
       (select pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) from pg_class as c
         where c.relkind = 'r' and c.oid = (select case when %(table_schema)s::text is null then to_regclass(quote_ident(%(table_name)s::text))::oid
                                                        else (select k.oid from pg_class as k join pg_namespace as s on s.oid = k.relnamespace
                                                               where s.nspname = %(table_schema)s::text and k.relname = %(table_name)s::text) end))
  from (values (%(name)s::text)) as asked(name)
  left join {schema}.reconcilers as r on r.name = asked.name;
