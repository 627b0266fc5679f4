-- rescue: running -> queued, for every job of a worker whose lease has passed; bury: running -> dead, when that was its
-- last attempt; drop: running -> cancelled, when it had been asked to stop.
-- Fence: the worker's row is marked rescued in the same statement, so that its renewals and claims are refused from here on.
-- Index: jobs_held. A job whose row is locked (a finish is in flight) is left for the next pass; so is its worker's row.
with late as materialized (
  select holder, host, pid from {schema}.workers
   where lease_until <= coalesce(%(now)s::timestamptz, now())
   order by lease_until limit 100
     for update skip locked
), marked as (
  update {schema}.workers as w set rescued_at = coalesce(w.rescued_at, %(now)s::timestamptz, now())
    from late where w.holder = late.holder
), held as materialized (
  select j.ctid as slot, j.id, j.kind, j.holder, j.attempt, late.host, late.pid,
         j.cancel_requested_at is not null as stopping, j.attempt >= j.max_attempts as spent,
         -- at once after the first crash, then ever later: a job that kills its workers must not keep the fleet busy dying
         coalesce(%(now)s::timestamptz, now()) + make_interval(secs => least(power(2, j.crashes) - 1, 60)) as run_at,
         case when jsonb_array_length(j.errors) >= %(most_errors)s then j.errors - 1 else j.errors end
           || jsonb_build_object('attempt', j.attempt, 'at', coalesce(%(now)s::timestamptz, now()), 'type', 'WorkerLost',
                                 'message', format('the lease of its worker passed (%%s, pid %%s)', late.host, late.pid)) as errors
    from {schema}.jobs as j join late on late.holder = j.holder
   where j.state = 'running' and j.holder = any(array(select holder from late))
     for update of j skip locked
), requeued as (
  update {schema}.jobs as j
     set state = 'queued', holder = null, crashes = j.crashes + 1, run_at = held.run_at, errors = held.errors
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
select held.id, held.kind, held.attempt, held.holder, held.host, held.pid, coalesce(finished.state, 'queued') as state
  from held left join finished using (id)
 order by held.id;
