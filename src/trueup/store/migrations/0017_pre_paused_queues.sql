-- Queues and kinds that people have paused: none of their jobs is claimed. Only adds; a worker of an older release does not look here, and
-- goes on claiming.
create table {schema}.pauses (
  what       text not null constraint pauses_what check (what in ('queue', 'kind')),
  name       text not null,
  paused_at  timestamptz not null,
  paused_by  text,
  reason     text,
  primary key (what, name)
);
