-- What the code declares, as people are shown it. Whoever sweeps next follows its own code; a pause and the past stay. When a reconciler
-- leaves shadow mode, what it knew about rows goes: nothing was done to them, so no rest, attempt or quarantine of theirs counts.
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
