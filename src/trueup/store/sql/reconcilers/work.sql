-- The breaker closes: a row has worked again. Index: reconcilers_pkey.
update {schema}.reconcilers set paused_until = null, pauses = 0, note = null
 where name = %(name)s and state = 'active' and (paused_until is not null or pauses > 0)
returning name;
