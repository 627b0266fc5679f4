-- What running code declares, so that no process takes what it does not know itself for removed; and an end for schedules whose
-- last tick has passed. Only adds: a worker of an older release leaves `workers.declaration` empty.

-- One row per distinct set of declarations: processes with equal code share it. `living_since` is when it was first declared after a
-- time without it, `started_at` when the last of its processes started, `seen_at` its last sign of life.
create table {schema}.declarations (
  digest        text primary key,
  service       text,
  release       text,
  queues        text[] not null,
  kinds         text[] not null,
  lanes         text[] not null,
  schedules     text[] not null,
  reconcilers   text[] not null,
  living_since  timestamptz not null,
  started_at    timestamptz not null,
  seen_at       timestamptz not null
) with (fillfactor = 50);

alter table {schema}.workers add column declaration text;

alter table {schema}.schedules
  drop constraint schedules_state,
  add constraint schedules_state check (state in ('active', 'paused', 'retired', 'finished'));
