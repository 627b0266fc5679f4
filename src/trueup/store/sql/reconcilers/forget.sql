-- Forgets a reconciler itself, and how its sweeps went. Index: reconcilers_pkey, reconciler_pauses_pkey; sweeps are read from end to end.
with paused as (
  delete from {schema}.reconciler_pauses where reconciler = %(name)s
), swept as (
  delete from {schema}.sweeps where reconciler = %(name)s
)
delete from {schema}.reconcilers where name = %(name)s returning name;
