-- rescue: running -> queued, for every job of a worker whose lease has passed; bury: running -> dead, when that was its
-- last attempt; drop: running -> cancelled, when it had been asked to stop.
-- A running job whose holder has no row was claimed for a worker that had left by the time its claim committed (a stalled server).
-- No handler saw it, so its attempt is given back. Holders are found by stepping through the index from one to the next.
-- Fence: the worker's row is marked rescued in the same statement, so that its renewals and claims are refused from here on.
-- Index: jobs_held. A job whose row is locked (a finish is in flight) is left for the next pass; so is its worker's row.
with recursive late as materialized (
  select holder, host, pid from {schema}.workers
   where lease_until <= coalesce(%(now)s::timestamptz, now())
   order by lease_until limit 100
     for update skip locked
), holders as (
  (select holder from {schema}.jobs where state = 'running' order by holder limit 1)
  union all
  select (select j.holder from {schema}.jobs as j where j.state = 'running' and j.holder > h.holder order by j.holder limit 1)
    from holders as h where h.holder is not null
), gone_before as (
  select holder from holders as h
   where holder is not null and not exists (select from {schema}.workers as w where w.holder = h.holder)
), lost as materialized (
  select holder, host, pid, false as unseen from late
  union all
  select holder, '', 0, true from gone_before
), marked as (
  update {schema}.workers as w set rescued_at = coalesce(w.rescued_at, %(now)s::timestamptz, now())
    from late where w.holder = late.holder
), held as materialized (
  select j.ctid as slot, j.id, j.kind, j.holder, j.attempt, lost.host, lost.pid, lost.unseen,
         j.cancel_requested_at is not null as stopping, j.attempt >= j.max_attempts and not lost.unseen as spent,
         -- at once and in its old place after the first crash, then ever later: a job that kills its workers must not keep the fleet busy dying
         case when lost.unseen or j.crashes = 0 then least(j.run_at, coalesce(%(now)s::timestamptz, now()))
              else coalesce(%(now)s::timestamptz, now()) + make_interval(secs => least(power(2::float8, j.crashes::float8) - 1::float8, 60::float8)) end as run_at,
         case when lost.unseen then j.errors
              else case when jsonb_array_length(j.errors) >= %(most_errors)s then j.errors - 1 else j.errors end
                || jsonb_build_object('attempt', j.attempt, 'at', coalesce(%(now)s::timestamptz, now()), 'type', 'WorkerLost',
                                      'message', format('the lease of its worker passed (%%s, pid %%s)', lost.host, lost.pid)) end as errors
    from {schema}.jobs as j join lost on lost.holder = j.holder
   where j.state = 'running' and j.holder = any(array(select holder from lost))
     for update of j skip locked
), requeued as (
  update {schema}.jobs as j
     set state = 'queued', holder = null, attempt = j.attempt - held.unseen::int, crashes = j.crashes + (not held.unseen)::int,
         run_at = held.run_at, errors = held.errors
    from held
   where j.ctid = any(array(select slot from held where not spent and not stopping)) and j.id = held.id
  returning j.id
), gone as (
  delete from {schema}.jobs where ctid = any(array(select slot from held where spent or stopping)) returning *
), finished as (
  insert into {schema}.history ({carried}, errors, state, finished_at, reason)
  select {carried}, held.errors, case when stopping then 'cancelled' else 'dead' end, coalesce(%(now)s::timestamptz, clock_timestamp()),
         case when stopping then 'stopped' else 'its worker died at the last attempt' end
    from gone join (select id, errors, stopping from held) as held using (id)
  returning id, state
)
select held.id, held.kind, held.attempt - held.unseen::int, held.holder, held.host, held.pid, coalesce(finished.state, 'queued') as state
  from held left join finished using (id)
 order by held.id;
