-- Whether there are rows without a record, among the first that match a reconciler or, where many have one, also behind the
-- last of those; and how many it looked at. A sweep that has nothing to do ends here. Locks nothing. Index: rows_pkey, and one of the user's own, as for claim_fresh.sql.
with seen as materialized (
  select s.* from ({branches}) as s
)
select exists (select from seen as s where not exists (
         select from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = s.trueup_key offset 0){passes}),
       (select count(*) from seen);
