-- Recorded actions that match, newest first. Index: actions_pkey, backwards, or actions_keys when a key is given.
select a.id, a.at, a.actor, a.via, a.host, a.action, a.what, a.name, a.count, a.keys, a.detail
  from {schema}.actions as a
 where a.id < %(before)s::bigint
   and (%(actor)s::text is null or a.actor = %(actor)s::text)
   and (%(via)s::text is null or a.via = %(via)s::text)
   and (%(action)s::text is null or a.action = %(action)s::text)
   and (%(what)s::text is null or a.what = %(what)s::text)
   and (%(name)s::text is null or a.name = %(name)s::text)
   and (%(key)s::text is null or (a.keys operator(pg_catalog.@>) array[%(key)s::text] and a.what <> 'row'))
   and (%(within)s::float8 is null or a.at > {now} - make_interval(secs => %(within)s::float8))
 order by a.id desc
 limit %(limit)s::int;
