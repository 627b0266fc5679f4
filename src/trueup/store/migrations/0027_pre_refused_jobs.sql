-- Jobs that PostgreSQL refuses to hand out, to take over or to end, as a worker that met it noted: what was refused, and why. A row
-- counts while its job has this term and is in this state. No foreign key: it would cost each job that ends.
create table {schema}.job_refusals (
  job_id      bigint primary key,
  term        bigint not null,
  state       text not null,
  move        text not null,
  error       text not null,
  refusals    int not null,
  refused_at  timestamptz not null
);

-- As before, with one check more: what PostgreSQL refuses about jobs.
create or replace function {schema}.health_at(moment timestamptz)
  returns table (name text, ok boolean, severity text, value float8, allowed float8, detail text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off set enable_sort = off
as $$
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
end $$;
