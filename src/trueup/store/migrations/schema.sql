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

CREATE OR REPLACE FUNCTION {schema}.health_at(moment timestamptz)
 RETURNS TABLE(name text, ok boolean, severity text, value double precision, allowed double precision, detail text)
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET enable_seqscan TO 'off'
 SET enable_sort TO 'off'
AS $function$
#variable_conflict use_column
begin
  return query
  with recursive alive as materialized (
    select w.queues, w.declaration, w.stopping from {schema}.workers as w where w.rescued_at is null and w.lease_until > moment
  ), living as materialized (
    select d.kinds, d.reconcilers from {schema}.declarations as d
     where exists (select from alive as a where a.declaration = d.digest and not a.stopping)
  ), judged as materialized (
    -- Reconcilers that a worker declares, as far as that is known: workers of an older release do not say.
    select r.* from {schema}.reconcilers as r
     where r.state = 'active'
       and (not exists (select from living) or exists (select from alive as a where a.declaration is null)
            or exists (select from living as l where r.name = any(l.reconcilers)))
  ), places as (
    (select j.lane, j.priority from {schema}.jobs as j where j.state = 'queued' order by j.lane, j.priority limit 1)
    union all
    select next.lane, next.priority
      from places as p,
           lateral (select j.lane, j.priority from {schema}.jobs as j
                     where j.state = 'queued' and (j.lane, j.priority) > (p.lane, p.priority) order by j.lane, j.priority limit 1) as next
  ), paused as materialized (
    select array(select p.name from {schema}.pauses as p where p.what = 'queue') as queues,
           array(select p.name from {schema}.pauses as p where p.what = 'kind') as kinds,
           array(select case p.what when 'queue' then p.name else '@' || p.name end from {schema}.pauses as p) as lanes
  ), heads as materialized (
    select head.kind, head.queue, min(head.run_at) as oldest
      from paused, (select * from places limit 1000) as p,
           lateral (select j.kind, j.queue, j.run_at from {schema}.jobs as j
                     where j.state = 'queued' and j.lane = p.lane and j.priority = p.priority and j.run_at <= moment
                       and j.queue <> all(paused.queues) and j.kind <> all(paused.kinds)
                     order by j.run_at, j.id limit 100) as head
     where p.lane <> all(paused.lanes)
     group by head.kind, head.queue
  ), unknown as materialized (
    select h.kind, h.queue, h.oldest from heads as h
     where exists (select from alive)
       and not exists (select from alive as a left join {schema}.declarations as d on d.digest = a.declaration
                        where h.queue = any(a.queues) and (d.digest is null or h.kind = any(d.kinds)))
  ), late as materialized (
    select s.name, s.next_due_at from {schema}.schedules as s
     where s.state = 'active' and s.next_due_at <= moment
       and not exists (select from {schema}.schedule_refusals as r where r.name = s.name and r.version = s.version)
     order by s.next_due_at limit 100
  ), stuck as materialized (
    select s.name, 'its tick is refused: ' || left(r.error, 200) as why
      from {schema}.schedules as s join {schema}.schedule_refusals as r on r.name = s.name and r.version = s.version
     where s.state = 'active'
    union all
    select s.name, 'it is ahead of the clock' from {schema}.schedules as s
     where s.state = 'active' and s.decided_until > moment + interval '1 minute'
  ), failing as materialized (
    select r.name, r.failures, left(regexp_replace(r.last_error, '[[:space:]]+', ' ', 'g'), 200) as error from judged as r where r.last_error is not null
    union all
    select 'scan ' || s.name, s.failures, left(regexp_replace(s.error, '[[:space:]]+', ' ', 'g'), 200) from {schema}.scans as s where s.error is not null
  ), failing_alike as materialized (
    select f.error, count(*) as number, string_agg(f.name || ' (' || f.failures || ' in a row)', ', ' order by f.failures desc, f.name) as names
      from failing as f group by f.error
  ), behind as materialized (
    select r.name, (select k.due_at from {schema}.rows as k
                     where k.reconciler = r.name and k.state in ('held', 'resting') order by k.due_at, k.key limit 1) as due_at
      from judged as r
     where coalesce(r.paused_until <= moment, true) and r.declared ->> 'every' is not null
       and not exists (select from {schema}.reconciler_pauses as p where p.reconciler = r.name and p.paused_until > moment)
  ), set_aside as materialized (
    select k.reconciler, count(*) as rows
      from (select q.reconciler from {schema}.rows as q
             where q.state in ('quarantined', 'discarded') and q.state = 'quarantined' limit 10000) as k
     group by k.reconciler
  ), opened as materialized (
    select r.name, r.paused_until, r.note from judged as r where r.paused_until > moment
    union all
    select p.reconciler || ' for ' || left(p.key, 100), p.paused_until, p.note
      from (select * from {schema}.reconciler_pauses as o where o.paused_until > moment limit 1000) as p
     where exists (select from judged as r where r.name = p.reconciler)
  ), holders (holder) as (
    (select j.holder from {schema}.jobs as j where j.state = 'running' order by j.holder limit 1)
    union all
    select (select j.holder from {schema}.jobs as j where j.state = 'running' and j.holder > h.holder order by j.holder limit 1)
      from holders as h where h.holder is not null
  ), stranded as materialized (
    select job.id, job.kind, coalesce(w.lease_until, job.claimed_at) as since
      from (select holder from holders where holder is not null limit 1000) as h
           left join {schema}.workers as w on w.holder = h.holder,
           lateral (select j.id, j.kind, j.claimed_at from {schema}.jobs as j where j.state = 'running' and j.holder = h.holder limit 1) as job
     where coalesce(w.lease_until <= moment, true) and exists (select from alive)
  ), refused as materialized (
    select j.id, j.kind, r.move, left(r.error, 200) as error
      from {schema}.job_refusals as r join {schema}.jobs as j on j.id = r.job_id and j.term = r.term and j.state = r.state
     order by r.refused_at desc limit 100
  ), died as materialized (
    select d.kind, count(*) as jobs
      from (select h.kind from {schema}.history as h
             where h.state = 'dead' and h.finished_at > moment - interval '1 hour' limit 10000) as d
     group by d.kind
  ), checks (place, name, severity, value, allowed, detail) as (
    select 1, 'workers', 'error',
           case when exists (select from alive) then 0 else greatest(1, coalesce(extract(epoch from moment - seen.last_at), 1)) end, 0,
           case when exists (select from alive) then (select count(*) from alive) || ' alive'
                else 'no worker is alive' || coalesce('; the last sign of life was ' || {schema}.span_text(moment - seen.last_at) || ' ago (' || to_char(seen.last_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') || ')', ', and none ever was') end
      from (select greatest((select f.last_alive_at from {schema}.fleet as f), (select max(w.renewed_at) from {schema}.workers as w)) as last_at) as seen
    union all
    select 2, 'ticks', 'error', coalesce(max(extract(epoch from moment - l.next_due_at)), 0), 300,
           coalesce('late by ' || {schema}.span_text(moment - min(l.next_due_at)) || ': ' || string_agg(l.name, ', ' order by l.next_due_at, l.name) filter (where l.next_due_at < moment - interval '300 s'), 'on time')
      from late as l
    union all
    select 3, 'schedules', 'error', count(*), 0, coalesce(string_agg(s.name || ': ' || s.why, '; '), 'every schedule can fire') from stuck as s
    union all
    select 4, 'kinds', 'error', coalesce(max(extract(epoch from moment - u.oldest)), 0), 60,
           coalesce('no living worker runs ' || string_agg(u.kind || ' (queue ' || u.queue || ', waiting for ' || {schema}.span_text(moment - u.oldest) || ')', ', '),
                    case when exists (select from alive) then 'every kind that waits is known to a worker' else 'not known: no worker is alive' end)
      from unknown as u
    union all
    select 5, 'stranded_jobs', 'error', coalesce(max(extract(epoch from moment - s.since)), 0), 60,
           coalesce(string_agg(s.kind || ' ' || s.id || ' (the lease of its worker ended ' || {schema}.span_text(moment - s.since) || ' ago)', ', ') filter (where s.since < moment - interval '60 s'),
                    case when exists (select from alive) then 'every running job has a living worker' else 'not known: no worker is alive' end)
      from stranded as s
    union all
    select 6, 'refused_jobs', 'error', count(*), 0,
           coalesce(string_agg(r.kind || ' ' || r.id || ' (' || r.move || '): ' || r.error, '; '), 'PostgreSQL takes what becomes of every job')
      from refused as r
    union all
    select 7, 'sweeps', 'error', coalesce(sum(f.number), 0), 0,
           coalesce(string_agg(f.names || ': ' || f.error, '; ' order by f.number desc, f.names), 'the last sweep of each reconciler went through')
      from failing_alike as f
    union all
    select 8, 'overdue_rows', 'error', coalesce(max(extract(epoch from moment - b.due_at)) filter (where b.due_at < moment), 0), 900,
           coalesce(string_agg(b.name || ' is behind by ' || {schema}.span_text(moment - b.due_at), ', ' order by b.due_at, b.name) filter (where b.due_at < moment - interval '900 s'), 'rows are on time')
      from behind as b
    union all
    select 9, 'overdue_jobs', 'warning', coalesce(max(extract(epoch from moment - h.oldest)), 0), 3600,
           coalesce(string_agg(h.kind || ' waits in queue ' || h.queue || ' for ' || {schema}.span_text(moment - h.oldest), ', ' order by h.oldest, h.kind) filter (where h.oldest < moment - interval '3600 s'), 'jobs are on time')
      from heads as h
    union all
    select 10, 'breakers', 'warning', count(*), 0,
           coalesce(string_agg(o.name || ' until ' || to_char(o.paused_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') || coalesce(': ' || left(o.note, 200), ''), '; '), 'every circuit breaker is closed')
      from opened as o
    union all
    select 11, 'quarantine', 'warning', coalesce(sum(s.rows), 0), 0, coalesce(string_agg(to_char(s.rows, 'FM999,999') || ' of ' || s.reconciler, ', ' order by s.rows desc, s.reconciler) || case when sum(s.rows) = 10000 then ', and more' else '' end, 'no row is in quarantine') from set_aside as s
    union all
    select 12, 'dead_letters', 'warning', coalesce(sum(d.jobs), 0), 0,
           coalesce('died in the last hour: ' || string_agg(to_char(d.jobs, 'FM999,999') || ' ' || d.kind, ', ' order by d.jobs desc, d.kind) || case when sum(d.jobs) = 10000 then ', and more' else '' end, 'no job died in the last hour')
      from died as d
  )
  select c.name, c.value <= c.allowed, c.severity, c.value::float8, c.allowed::float8, left(c.detail, 1000) from checks as c order by c.place;
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

CREATE OR REPLACE FUNCTION {schema}.one_by_one(statement text, count integer, seconds double precision, changed oid)
 RETURNS TABLE(key text, verdict text, nth integer, code text, said text, violated text)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
  name constant text := pg_catalog.format('trueup_%s', pg_catalog.gen_random_uuid());
  until constant timestamptz := pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => seconds);
  role constant text := pg_catalog.current_setting('role');
  datestyle constant text := pg_catalog.current_setting('datestyle');
  most constant int := 32;
  size int := most;
  first int := 1;
  last int;
  refused_last int := 0;  -- the refused row before
  refused_to int := 0;  -- one of the rows from `first` to here is refused
  guessed boolean := false;  -- `refused_to` itself, by the number of rows that were written before it
  written bigint;
  one record;
  keys text[];
  verdicts text[];
begin
  execute pg_catalog.format('prepare %I (int, int) as %s', name, statement);
  begin
    while first <= count and pg_catalog.clock_timestamp() < until loop
      last := case when first > refused_to then least(first + size - 1, count)
                   when first = refused_to then first
                   when guessed then refused_to - 1
                   else (first + refused_to - 1) / 2 end;
      written := pg_catalog.pg_stat_get_xact_tuples_updated(changed) + pg_catalog.pg_stat_get_xact_tuples_deleted(changed);
      begin
        keys := array[]::text[];
        verdicts := array[]::text[];
        for one in execute pg_catalog.format('execute %I (%s, %s)', name, first, last) loop
          keys := pg_catalog.array_append(keys, one.key);
          verdicts := pg_catalog.array_append(verdicts, one.verdict);
        end loop;
      exception when query_canceled or assert_failure or others then
        if pg_catalog.clock_timestamp() >= until and (first = 1 or sqlstate = '57014') then
          raise;
        elsif last > first then
          written := pg_catalog.pg_stat_get_xact_tuples_updated(changed) + pg_catalog.pg_stat_get_xact_tuples_deleted(changed) - written;
          if sqlstate in ('23505', '23P01') then
            written := greatest(0, written - 1);  -- the row itself is counted, too
          end if;
          guessed := (not guessed and written <= last - first) is true;
          refused_to := case when guessed then first + written else last end;
          continue;
        end if;
        get stacked diagnostics code = returned_sqlstate, said = message_text, violated = constraint_name;
        nth := first;
        return next;
        size := least(most, first - refused_last);
        refused_last := first;
        first := first + 1;
        guessed := false;
        continue;
      end;
      perform pg_catalog.set_config('role', role, false), pg_catalog.set_config('datestyle', datestyle, false);
      return query select k, v, null::int, null::text, null::text, null::text from unnest(keys, verdicts) as u(k, v);
      first := last + 1;
      if first > refused_to then
        size := least(most, size * 2);
        guessed := false;
      end if;
    end loop;
  exception when query_canceled or assert_failure or others then
    execute pg_catalog.format('deallocate %I', name);
    raise;
  end;
  execute pg_catalog.format('deallocate %I', name);
  nth := first;
  return next;
end $function$;

CREATE OR REPLACE FUNCTION {schema}.span_text(span interval)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
  select case when s >= 86400 then s / 86400 || 'd' || coalesce(nullif(s % 86400 / 3600, 0) || 'h', '')
              when s >= 3600 then s / 3600 || 'h' || coalesce(nullif(s % 3600 / 60, 0) || 'm', '')
              when s >= 60 then s / 60 || 'm' || coalesce(nullif(s % 60, 0) || 's', '')
              else s || 's' end
    from (select floor(extract(epoch from greatest(interval '0', least(span, interval '1000000 days'))))::bigint as s) as whole
$function$;

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

create table {schema}.actions (
  id                   bigint not null generated always as identity,
  at                   timestamptz not null,
  actor                text not null,
  via                  text not null,
  host                 text not null,
  action               text not null,
  what                 text not null,
  name                 text,
  count                bigint not null,
  keys                 text[] not null default '{{}}'::text[],
  detail               text,
  constraint actions_pkey PRIMARY KEY (id)
);
CREATE INDEX actions_at ON {schema}.actions USING btree (at);
CREATE INDEX actions_keys ON {schema}.actions USING gin (keys);

create table {schema}.alerts (
  name                 text not null,
  state                text not null,
  since                timestamptz not null,
  severity             text not null,
  problem              text not null,
  constraint alerts_pkey PRIMARY KEY (name),
  constraint alerts_state CHECK ((state = ANY (ARRAY['noticed'::text, 'raised'::text, 'sent'::text, 'resolved'::text])))
);

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
  meta                 jsonb,
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

create table {schema}.job_refusals (
  job_id               bigint not null,
  term                 bigint not null,
  state                text not null,
  move                 text not null,
  error                text not null,
  refusals             integer not null,
  refused_at           timestamptz not null,
  constraint job_refusals_pkey PRIMARY KEY (job_id)
);

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
  meta                 jsonb,
  constraint jobs_pkey PRIMARY KEY (id),
  constraint jobs_attempt CHECK ((attempt >= 0)),
  constraint jobs_holder CHECK (((state = 'running'::text) = (holder IS NOT NULL))),
  constraint jobs_run_at CHECK (((run_at >= '1970-01-01 00:00:00+00'::timestamptz) AND (run_at <= '9000-01-01 00:00:00+00'::timestamptz))),
  constraint jobs_state CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text])))
) with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_insert_scale_factor=0.5, autovacuum_analyze_scale_factor=0.1, autovacuum_vacuum_cost_delay=0, fillfactor=45);
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

create table {schema}.pauses (
  what                 text not null,
  name                 text not null,
  paused_at            timestamptz not null,
  paused_by            text,
  reason               text,
  constraint pauses_pkey PRIMARY KEY (what, name),
  constraint pauses_what CHECK ((what = ANY (ARRAY['queue'::text, 'kind'::text])))
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
  meta                 jsonb,
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
  blocked              jsonb,
  constraint workers_pkey PRIMARY KEY (holder)
) with (fillfactor=50);

alter table {schema}.history_cancelled_rest replica identity full;

alter table {schema}.history_dead_rest replica identity full;

alter table {schema}.history_done_rest replica identity full;

CREATE TRIGGER leases_term BEFORE INSERT ON {schema}.leases FOR EACH ROW EXECUTE FUNCTION {schema}.lease_term();

create view {schema}.health as
 SELECT name,
    ok,
    severity,
    value,
    allowed,
    detail
   FROM {schema}.health_at(now()) h(name, ok, severity, value, allowed, detail);
