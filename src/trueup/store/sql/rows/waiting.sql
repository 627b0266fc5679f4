-- How many rows match a reconciler, up to a number: those that are not held, resting or quarantined, and those due again;
-- or (`late_by`) only those that have been due or stale for longer than that.
-- Index: one of the user's own, and rows_pkey.
select count(*) from (
  select from {table} as t
   where {free} and (%(late_by)s::float8 is null or {due} < {now} - make_interval(secs => %(late_by)s::float8))
     and not exists (select from {schema}.rows as r
                      where r.reconciler = %(reconciler)s and r.key = {t_key} and (r.state in ('quarantined', 'discarded') or r.due_at > {now}) offset 0)
   limit %(most)s) as w;
