-- What the code declares, as people are shown it. Whoever sweeps next follows its own code; a pause and the past stay.
insert into {schema}.reconcilers as r (name, place, declared, declared_at)
values (%(name)s, %(place)s, %(declared)s::jsonb, {now})
on conflict (name) do update set place = excluded.place, declared = excluded.declared, declared_at = excluded.declared_at
 where (r.place, r.declared) is distinct from (excluded.place, excluded.declared);
