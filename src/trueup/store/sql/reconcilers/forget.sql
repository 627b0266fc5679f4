-- Deletes a reconciler and the record of its sweeps. Index: reconcilers_pkey, reconciler_pauses_pkey; reads all sweeps.
with paused as (
  delete from {schema}.reconciler_pauses where reconciler = %(name)s
), swept as (
  delete from {schema}.sweeps where reconciler = %(name)s
)
delete from {schema}.reconcilers where name = %(name)s returning name;
