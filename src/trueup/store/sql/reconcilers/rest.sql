-- The circuit breaker opens: no worker sweeps for a while. One that is open stays as it is, unless `extend` asks for more than a second longer. Index: reconcilers_pkey.
update {schema}.reconcilers
   set paused_until = {now} + make_interval(secs => %(seconds)s::float8), pauses = pauses + 1, note = %(note)s
 where name = %(name)s
   and (paused_until is null or paused_until <= {now} or (%(extend)s and paused_until < {now} + make_interval(secs => %(seconds)s::float8 - 1::float8)))
returning pauses;
