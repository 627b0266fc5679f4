-- What all migrations together give. Made by `python -m tools.schema`; never applied to a database that has data.
create schema {schema};

CREATE OR REPLACE FUNCTION {schema}.begin_epoch()
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
declare
  here text := {schema}.cluster();
  now_on bigint := {schema}.timeline();
begin
  if exists (select from {schema}.epoch where cluster <> here or relation <> tableoid or timeline > now_on) then
    update {schema}.epoch
       set lowest = lowest + ((greatest(now_on - timeline, 0) + 1) << 40), timeline = coalesce(now_on, timeline), cluster = here, relation = tableoid
     where cluster <> here or relation <> tableoid or timeline > now_on;
  end if;
end $function$;

CREATE OR REPLACE FUNCTION {schema}.cluster()
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
begin
  return (select system_identifier::text from pg_catalog.pg_control_system());
exception when others then
  return 'unknown';
end $function$;

CREATE OR REPLACE FUNCTION {schema}.lease_term()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
begin
  new.term := {schema}.term_floor() + nextval('{schema}.lease_terms');
  return new;
end $function$;

CREATE OR REPLACE FUNCTION {schema}.term_floor()
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
declare
  now_on bigint := {schema}.timeline();
  known_on bigint;
  known bigint;
begin
  select lowest, timeline into known, known_on from {schema}.epoch;
  if now_on > known_on then
    update {schema}.epoch set lowest = lowest + ((now_on - timeline) << 40), timeline = now_on where timeline < now_on;
    select lowest into known from {schema}.epoch;
  end if;
  return coalesce(known, (coalesce(now_on, 1) - 1) << 40);
end $function$;

CREATE OR REPLACE FUNCTION {schema}.timeline()
 RETURNS bigint
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
begin
  return ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint;
exception when others then
  return null;
end $function$;

create sequence {schema}.lease_terms;

create sequence {schema}.row_terms;

create table {schema}.declarations (
  digest               text not null,
  service              text,
  release              text,
  queues               text[] not null,
  kinds                text[] not null,
  lanes                text[] not null,
  schedules            text[] not null,
  reconcilers          text[] not null,
  living_since         timestamptz not null,
  started_at           timestamptz not null,
  seen_at              timestamptz not null,
  exhausted            text[] not null default ARRAY[]::text[],
  constraint declarations_pkey PRIMARY KEY (digest)
) with (fillfactor=50);

create table {schema}.downtimes (
  since                timestamptz not null,
  until                timestamptz not null,
  constraint downtimes_pkey PRIMARY KEY (until)
);

create table {schema}.epoch (
  one                  boolean not null default true,
  lowest               bigint not null,
  timeline             bigint not null,
  cluster              text not null,
  relation             oid not null,
  constraint epoch_pkey PRIMARY KEY (one),
  constraint epoch_one CHECK (one)
) with (fillfactor=50);

create table {schema}.fleet (
  one                  boolean not null default true,
  last_alive_at        timestamptz not null,
  constraint fleet_pkey PRIMARY KEY (one),
  constraint fleet_one CHECK (one)
) with (fillfactor=50);

create table {schema}.history (
  id                   bigint not null,
  kind                 text not null,
  queue                text not null,
  lane                 text not null,
  key                  text not null,
  state                text not null,
  priority             integer not null,
  run_at               timestamptz not null,
  args                 jsonb not null,
  unique_key           text,
  attempt              integer not null,
  max_attempts         integer not null,
  crashes              integer not null,
  term                 bigint not null,
  holder               uuid,
  enqueued_at          timestamptz not null,
  claimed_at           timestamptz,
  finished_at          timestamptz not null,
  progress             jsonb,
  errors               jsonb not null,
  result               jsonb,
  reason               text,
  schedule             text,
  due_at               timestamptz,
  constraint history_state CHECK ((state = ANY (ARRAY['done'::text, 'dead'::text, 'cancelled'::text])))
) partition by LIST (state);
CREATE INDEX history_finished_at ON {schema}.history USING brin (finished_at);
CREATE INDEX history_id ON {schema}.history USING btree (id);

create table {schema}.history_cancelled partition of {schema}.history FOR VALUES IN ('cancelled') partition by RANGE (finished_at);

create table {schema}.history_cancelled_rest partition of {schema}.history_cancelled DEFAULT;

create table {schema}.history_dead partition of {schema}.history FOR VALUES IN ('dead') partition by RANGE (finished_at);

create table {schema}.history_dead_rest partition of {schema}.history_dead DEFAULT;

create table {schema}.history_done partition of {schema}.history FOR VALUES IN ('done') partition by RANGE (finished_at);

create table {schema}.history_done_rest partition of {schema}.history_done DEFAULT;

create table {schema}.jobs (
  id                   bigint not null generated by default as identity,
  kind                 text not null,
  queue                text not null,
  lane                 text not null,
  key                  text not null default ''::text,
  state                text not null default 'queued'::text,
  priority             integer not null default 0,
  run_at               timestamptz not null,
  rank                 timestamptz not null,
  args                 jsonb not null,
  unique_key           text,
  attempt              integer not null default 0,
  max_attempts         integer not null,
  crashes              integer not null default 0,
  term                 bigint not null default 0,
  holder               uuid,
  enqueued_at          timestamptz not null default now(),
  claimed_at           timestamptz,
  cancel_requested_at  timestamptz,
  progress             jsonb,
  errors               jsonb not null default '[]'::jsonb,
  schedule             text,
  due_at               timestamptz,
  exhausting           jsonb,
  constraint jobs_pkey PRIMARY KEY (id),
  constraint jobs_attempt CHECK ((attempt >= 0)),
  constraint jobs_holder CHECK (((state = 'running'::text) = (holder IS NOT NULL))),
  constraint jobs_run_at CHECK (((run_at >= '1970-01-01 00:00:00+00'::timestamptz) AND (run_at <= '9000-01-01 00:00:00+00'::timestamptz))),
  constraint jobs_state CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text])))
) with (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_insert_scale_factor=0.5, autovacuum_analyze_scale_factor=0.1, autovacuum_vacuum_cost_delay=0);
CREATE INDEX jobs_due ON {schema}.jobs USING btree (lane, priority, run_at, id) WHERE (state = 'queued'::text);
CREATE INDEX jobs_due_by_key ON {schema}.jobs USING btree (lane, key, priority, run_at, id) WHERE ((state = 'queued'::text) AND (lane <> queue));
CREATE INDEX jobs_held ON {schema}.jobs USING btree (holder) WHERE (state = 'running'::text);
CREATE INDEX jobs_in_lane ON {schema}.jobs USING btree (lane, key) WHERE ((state = 'running'::text) AND (lane <> queue));
CREATE INDEX jobs_of_schedule ON {schema}.jobs USING btree (schedule) WHERE (schedule IS NOT NULL);
CREATE INDEX jobs_stopping ON {schema}.jobs USING btree (holder) WHERE (cancel_requested_at IS NOT NULL);
CREATE UNIQUE INDEX jobs_unique ON {schema}.jobs USING btree (kind, unique_key) WHERE (unique_key IS NOT NULL);

create table {schema}.lanes (
  lane                 text not null,
  next_start_at        timestamptz,
  last_key             text not null default ''::text,
  constraint lanes_pkey PRIMARY KEY (lane)
) with (fillfactor=50);

create table {schema}.leases (
  name                 text not null,
  holder               uuid,
  label                text,
  term                 bigint not null,
  lease_until          timestamptz not null,
  acquired_at          timestamptz not null,
  renewed_at           timestamptz not null,
  constraint leases_pkey PRIMARY KEY (name)
) with (fillfactor=50);

create table {schema}.migrations (
  number               integer not null,
  step                 text not null,
  name                 text not null,
  applied_at           timestamptz not null default now(),
  constraint migrations_pkey PRIMARY KEY (number, step),
  constraint migrations_step_check CHECK ((step = ANY (ARRAY['only'::text, 'pre'::text, 'post'::text])))
);

create table {schema}.rates (
  name                 text not null,
  next_at              timestamptz not null,
  constraint rates_pkey PRIMARY KEY (name)
) with (fillfactor=50);

create table {schema}.reconciler_pauses (
  reconciler           text not null,
  key                  text not null,
  paused_until         timestamptz not null,
  pauses               integer not null default 1,
  note                 text,
  constraint reconciler_pauses_pkey PRIMARY KEY (reconciler, key)
) with (fillfactor=70);

create table {schema}.reconcilers (
  name                 text not null,
  place                text not null,
  declared             jsonb not null,
  state                text not null default 'active'::text,
  note                 text,
  declared_at          timestamptz not null,
  last_swept_at        timestamptz,
  paused_until         timestamptz,
  pauses               integer not null default 0,
  last_error           text,
  last_failed_at       timestamptz,
  failures             integer not null default 0,
  walked_at            timestamptz,
  walked_past          bigint,
  walked_writes        bigint,
  constraint reconcilers_pkey PRIMARY KEY (name),
  constraint reconcilers_state CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text])))
) with (fillfactor=50);

create table {schema}.rows (
  reconciler           text not null,
  key                  text not null,
  state                text not null,
  due_at               timestamptz not null,
  holder               uuid,
  term                 bigint not null,
  attempt              integer not null,
  crashes              integer not null default 0,
  alone                boolean not null default false,
  was_state            text,
  was_changed_at       text,
  claimed_at           timestamptz not null,
  changed_at           timestamptz not null,
  reason               text,
  errors               jsonb not null default '[]'::jsonb,
  proposed             jsonb,
  occasion             bigint,
  started              boolean not null default false,
  whole_key            text,
  constraint rows_pkey PRIMARY KEY (reconciler, key),
  constraint rows_attempt CHECK ((attempt >= 0)),
  constraint rows_holder CHECK (((state = 'held'::text) = (holder IS NOT NULL))),
  constraint rows_state CHECK ((state = ANY (ARRAY['held'::text, 'resting'::text, 'quarantined'::text, 'discarded'::text])))
) with (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0.1, autovacuum_vacuum_cost_delay=0);
CREATE INDEX rows_due ON {schema}.rows USING btree (reconciler, due_at, key) WHERE (state = ANY (ARRAY['held'::text, 'resting'::text]));
CREATE INDEX rows_set_aside ON {schema}.rows USING btree (reconciler, changed_at) WHERE (state = ANY (ARRAY['quarantined'::text, 'discarded'::text]));

create table {schema}.scans (
  name                 text not null,
  cursor               jsonb,
  underway             boolean not null default false,
  started_at           timestamptz,
  saved_at             timestamptz,
  finished_at          timestamptz,
  due_at               timestamptz not null,
  items                bigint not null default 0,
  failed               bigint not null default 0,
  failures             integer not null default 0,
  error                text,
  constraint scans_pkey PRIMARY KEY (name)
) with (fillfactor=50);

create table {schema}.schedule_refusals (
  name                 text not null,
  version              bigint not null,
  error                text not null,
  refusals             integer not null,
  refused_at           timestamptz not null,
  retry_at             timestamptz not null,
  constraint schedule_refusals_pkey PRIMARY KEY (name)
);

create table {schema}.schedule_versions (
  name                 text not null,
  version              bigint not null,
  since                timestamptz not null,
  state                text not null,
  spec                 jsonb not null,
  constraint schedule_versions_pkey PRIMARY KEY (name, version)
);

create table {schema}.schedules (
  name                 text not null,
  origin               text not null,
  state                text not null default 'active'::text,
  spec                 jsonb not null,
  policy               jsonb not null,
  kind                 text not null,
  queue                text not null,
  lane                 text not null,
  priority             integer not null default 0,
  max_attempts         integer not null,
  args                 jsonb not null default '{{}}'::jsonb,
  version              bigint not null default 1,
  next_due_at          timestamptz,
  decided_until        timestamptz not null,
  note                 text,
  created_at           timestamptz not null,
  changed_at           timestamptz not null,
  constraint schedules_pkey PRIMARY KEY (name),
  constraint schedules_origin CHECK ((origin = ANY (ARRAY['code'::text, 'people'::text]))),
  constraint schedules_state CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text, 'retired'::text, 'finished'::text])))
) with (fillfactor=70);
CREATE INDEX schedules_due ON {schema}.schedules USING btree (next_due_at) WHERE (state = 'active'::text);

create table {schema}.sweeps (
  id                   bigint not null generated always as identity,
  reconciler           text not null,
  holder               uuid not null,
  started_at           timestamptz not null,
  ended_at             timestamptz not null,
  claimed              bigint not null,
  changed              bigint not null,
  unchanged            bigint not null,
  conflict             bigint not null,
  retry                bigint not null,
  quarantined          bigint not null,
  lost                 bigint not null,
  late                 bigint not null,
  worst_lateness_s     double precision not null,
  total_lateness_s     double precision not null,
  lateness             bigint[] not null,
  undone               bigint not null default 0,
  constraint sweeps_pkey PRIMARY KEY (id)
);
CREATE INDEX sweeps_of_reconciler ON {schema}.sweeps USING btree (reconciler, started_at);
CREATE INDEX sweeps_started_at ON {schema}.sweeps USING btree (started_at);

create table {schema}.ticks (
  schedule             text not null,
  due_at               timestamptz not null,
  last_due_at          timestamptz not null,
  count                integer not null default 1,
  outcome              text not null,
  reason               text,
  job_id               bigint,
  version              bigint not null,
  decided_at           timestamptz not null,
  constraint ticks_pkey PRIMARY KEY (schedule, due_at),
  constraint ticks_outcome CHECK ((outcome = ANY (ARRAY['fired'::text, 'skipped'::text])))
) partition by RANGE (due_at);

create table {schema}.ticks_rest partition of {schema}.ticks DEFAULT;

create table {schema}.unique_windows (
  kind                 text not null,
  unique_key           text not null,
  job_id               bigint not null,
  taken_until          timestamptz not null,
  constraint unique_windows_pkey PRIMARY KEY (kind, unique_key)
);
CREATE INDEX unique_windows_until ON {schema}.unique_windows USING btree (taken_until);

create table {schema}.workers (
  holder               uuid not null,
  host                 text not null,
  pid                  integer not null,
  release              text,
  queues               text[] not null,
  concurrency          integer not null,
  started_at           timestamptz not null,
  renewed_at           timestamptz not null,
  lease_until          timestamptz not null,
  stopping             boolean not null default false,
  rescued_at           timestamptz,
  declaration          text,
  constraint workers_pkey PRIMARY KEY (holder)
) with (fillfactor=50);

alter table {schema}.history_cancelled_rest replica identity full;

alter table {schema}.history_dead_rest replica identity full;

alter table {schema}.history_done_rest replica identity full;

CREATE TRIGGER leases_term BEFORE INSERT ON {schema}.leases FOR EACH ROW EXECUTE FUNCTION {schema}.lease_term();
