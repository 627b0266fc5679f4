-- A person pauses or resumes a reconciler. Index: reconcilers_pkey.
update {schema}.reconcilers set state = %(state)s, note = %(note)s, paused_until = null, pauses = 0
 where name = %(name)s and (state <> %(state)s or paused_until is not null)
returning name;
