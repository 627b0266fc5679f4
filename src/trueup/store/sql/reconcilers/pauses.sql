-- The keys whose breaker is open or not yet found working: for how many seconds more, and after how many pauses in a row.
-- Index: reconciler_pauses_pkey.
select key, extract(epoch from paused_until - {now})::float8, pauses from {schema}.reconciler_pauses where reconciler = %(name)s;
