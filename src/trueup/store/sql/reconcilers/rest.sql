-- The breaker opens: nobody sweeps for a while. Whoever finds it open already leaves it. Index: reconcilers_pkey.
update {schema}.reconcilers
   set paused_until = {now} + make_interval(secs => %(seconds)s::float8), pauses = pauses + 1, note = %(note)s
 where name = %(name)s and (paused_until is null or paused_until <= {now})
returning pauses;
