-- Records an action, or adds to one that is recorded already, when `id` is given.
with added as (
  update {schema}.actions
     set count = count + %(count)s::bigint, keys = (keys operator(pg_catalog.||) %(keys)s::text[])[:%(max_keys)s::int]
   where id = %(id)s::bigint
  returning id
), made as (
  insert into {schema}.actions (at, actor, via, host, action, what, name, count, keys, detail)
  select {now}, %(actor)s::text, %(via)s::text, %(host)s::text, %(action)s::text, %(what)s::text, %(name)s::text,
         %(count)s::bigint, (%(keys)s::text[])[:%(max_keys)s::int], %(detail)s::text
   where %(id)s::bigint is null
  returning id
)
select id from added union all select id from made;
