-- Reconcilers: what is known about rows of users' own tables, how sweeps and scans went. Only adds, so older workers run on beside it.

-- Terms of claims on rows. What is known about a row is forgotten when it is done, its terms must not begin anew: one sequence for all.
create sequence {schema}.row_terms;

-- One row per declared reconciler, sweep or scan: who may act, and since when nobody has.
create table {schema}.reconcilers (
  name           text primary key,
  place          text not null,
  declared       jsonb not null,
  state          text not null default 'active' constraint reconcilers_state check (state in ('active', 'paused')),
  note           text,
  declared_at    timestamptz not null,
  last_swept_at  timestamptz,
  paused_until   timestamptz,
  pauses         int not null default 0
) with (fillfactor = 50);

-- What is known about rows that are held, rest until they are looked at again, or were set aside. Rows never looked at, and rows
-- that are done, have nothing here. `due_at` is when one may be looked at next; of a held one, that is the end of its lease.
create table {schema}.rows (
  reconciler      text not null,
  key             text not null,
  state           text not null constraint rows_state check (state in ('held', 'resting', 'quarantined', 'discarded')),
  due_at          timestamptz not null,
  holder          uuid,
  term            bigint not null,
  attempt         int not null constraint rows_attempt check (attempt >= 0),
  crashes         int not null default 0,
  alone           boolean not null default false,
  was_state       text,
  was_changed_at  text,
  claimed_at      timestamptz not null,
  changed_at      timestamptz not null,
  reason          text,
  errors          jsonb not null default '[]',
  proposed        jsonb,
  primary key (reconciler, key),
  constraint rows_holder check ((state = 'held') = (holder is not null))
) with (
  fillfactor = 85,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 2000,
  autovacuum_analyze_scale_factor = 0.1,
  autovacuum_vacuum_cost_delay = 0
);
create index rows_due on {schema}.rows (reconciler, due_at) where state in ('held', 'resting');
create index rows_set_aside on {schema}.rows (reconciler, changed_at) where state in ('quarantined', 'discarded');

-- One row per sweep that found something. `lateness` counts rows by how late they were (the bounds are in reconcile/lateness.py).
create table {schema}.sweeps (
  id                bigint generated always as identity primary key,
  reconciler        text not null,
  holder            uuid not null,
  started_at        timestamptz not null,
  ended_at          timestamptz not null,
  claimed           bigint not null,
  changed           bigint not null,
  unchanged         bigint not null,
  conflict          bigint not null,
  retry             bigint not null,
  quarantined       bigint not null,
  lost              bigint not null,
  late              bigint not null,
  worst_lateness_s  float8 not null,
  total_lateness_s  float8 not null,
  lateness          bigint[] not null
);
create index sweeps_started_at on {schema}.sweeps (started_at);
create index sweeps_of_reconciler on {schema}.sweeps (reconciler, started_at);

-- Where a scan over something that is not a table has come to. `cursor` is null when none is under way, or nothing of it is kept yet.
-- `failures` counts how often it was begun in a row without getting further.
create table {schema}.scans (
  name         text primary key,
  cursor       jsonb,
  underway     boolean not null default false,
  started_at   timestamptz,
  saved_at     timestamptz,
  finished_at  timestamptz,
  due_at       timestamptz not null,
  items        bigint not null default 0,
  failed       bigint not null default 0,
  failures     int not null default 0,
  error        text
) with (fillfactor = 50);

-- When no worker was alive: found by the first one that comes back. `fleet` has the last sign of life of those that left in order.
create table {schema}.fleet (
  one            boolean primary key default true constraint fleet_one check (one),
  last_alive_at  timestamptz not null
) with (fillfactor = 50);
create table {schema}.downtimes (
  since  timestamptz not null,
  until  timestamptz primary key
);
