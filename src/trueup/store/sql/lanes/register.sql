insert into {schema}.lanes (lane) select unnest(%(lanes)s::text[]) on conflict do nothing;
