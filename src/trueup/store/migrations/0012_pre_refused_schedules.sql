-- Schedules whose ticks the database refuses: why, how often, and when they are tried again. Planners leave them out of the pass in
-- which all others are planned. A row counts for the version that it names. Only adds: older planners do not look at it.
create table {schema}.schedule_refusals (
  name        text primary key,
  version     bigint not null,
  error       text not null,
  refusals    int not null,
  refused_at  timestamptz not null,
  retry_at    timestamptz not null
);
