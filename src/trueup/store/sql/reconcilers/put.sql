-- Stores the declaration, for people to read. Each worker follows its own code; a pause and past sweeps stay. When a reconciler leaves
-- shadow mode, its records about rows are deleted: nothing was done to the rows, so no backoff, attempt or quarantine counts.
-- Index: reconcilers_pkey, rows_pkey.
with was as materialized (
  select r.declared ->> 'mode'::text as mode from {schema}.reconcilers as r where r.name = %(name)s for update
), forgotten as (
  delete from {schema}.rows as k
   where k.reconciler = %(name)s and (select w.mode from was as w) = 'shadow'::text and %(declared)s::jsonb ->> 'mode'::text = 'live'::text
  returning 1
)
insert into {schema}.reconcilers as r (name, place, declared, declared_at)
select %(name)s, %(place)s, %(declared)s::jsonb, {now} from (select count(*) from forgotten) as first
on conflict (name) do update set place = excluded.place, declared = excluded.declared, declared_at = excluded.declared_at
 where (r.place, r.declared) is distinct from (excluded.place, excluded.declared);
