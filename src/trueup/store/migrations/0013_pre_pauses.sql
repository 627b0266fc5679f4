-- Circuit breakers with a key (`pause_by=`): one row per key whose breaker is open, or has not been found working since. Only adds; an
-- older worker ignores it.
create table {schema}.reconciler_pauses (
  reconciler    text not null,
  key           text not null,
  paused_until  timestamptz not null,
  pauses        int not null default 1,
  note          text,
  primary key (reconciler, key)
) with (fillfactor = 70);
