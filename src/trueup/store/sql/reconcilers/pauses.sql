-- The keys whose circuit breaker is open or half-open: the seconds left, and the number of consecutive pauses.
-- Index: reconciler_pauses_pkey.
select key, extract(epoch from paused_until - {now})::float8, pauses from {schema}.reconciler_pauses where reconciler = %(name)s;
