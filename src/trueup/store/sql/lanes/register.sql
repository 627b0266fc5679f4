-- A row for each lane, to be locked by whoever claims through it.
insert into {schema}.lanes (lane) select unnest(%(lanes)s::text[]) on conflict do nothing;
