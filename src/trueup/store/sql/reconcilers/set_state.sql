-- A person pauses or resumes a reconciler; breakers close, those of its keys, too. Index: reconcilers_pkey, reconciler_pauses_pkey.
with closed as (
  delete from {schema}.reconciler_pauses where reconciler = %(name)s returning 1
)
update {schema}.reconcilers set state = %(state)s, note = %(note)s, paused_until = null, pauses = 0
 where name = %(name)s and (state <> %(state)s or paused_until is not null or exists (select from closed))
returning name;
