-- How many rows there are for a reconciler, up to a number: free ones that are not held, resting or set aside, and those due again.
-- Index: one of the user's own, and rows_pkey.
select count(*) from (
  select from {table} as t
   where {free}
     and not exists (select from {schema}.rows as r
                      where r.reconciler = %(reconciler)s and r.key = {t_key} and (r.state in ('quarantined', 'discarded') or r.due_at > {now}) offset 0)
   limit %(most)s) as w;
