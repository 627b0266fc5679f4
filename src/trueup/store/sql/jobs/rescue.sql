-- rescue: running -> queued, for every job of a worker whose lease has expired; bury: running -> dead, when that was its
-- last attempt; drop: running -> cancelled, when its cancellation was requested.
-- A job whose kind has `exhausted=` is not buried here, because that is code: it goes back to the queue marked `exhausting`, with the
-- attempt given back. A worker that knows the kind claims it, calls only `exhausted=` and buries it, under a new term. If that worker
-- dies, too, the call is tried again, up to `max_tries`.
-- A running job whose holder has no row was claimed for a worker that had left by the time its claim committed (a stalled server).
-- No handler saw it, so its attempt is given back. Holders are found by stepping through the index from one to the next.
-- Fence: the worker's row is marked rescued in the same statement, so that its renewals and claims are refused from here on.
-- `only`: of these jobs, after one has made the statement fail. Index: jobs_held. A job whose row is locked (a finish is in flight) is left for the next pass; so is its worker's row.
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
), exhausts as materialized (
  select unnest(exhausted) as kind from {schema}.declarations union select unnest(%(exhausts)s::text[])
), marked as (
  update {schema}.workers as w set rescued_at = coalesce(w.rescued_at, %(now)s::timestamptz, now())
    from late where w.holder = late.holder
), held as materialized (
  select j.ctid as slot, j.id, j.kind, j.holder, j.attempt, lost.host, lost.pid, lost.unseen,
         j.cancel_requested_at is not null as stopping,
         (j.attempt >= j.max_attempts or j.exhausting is not null) and not lost.unseen as spent,
         j.exhausting, coalesce((j.exhausting ->> 'tries'::text)::int + 1, 0) as tries, j.kind = any(array(select kind from exhausts)) as exhausts,
         -- in its old place after the first crash, then with growing delays: a poison job must not keep the fleet crashing
         case when lost.unseen or j.crashes = 0 then least(j.run_at, coalesce(%(now)s::timestamptz, now()))
              else coalesce(%(now)s::timestamptz, now()) + make_interval(secs => least(power(2::float8, j.crashes::float8) - 1::float8, 60::float8)) end as run_at,
         case when lost.unseen then j.errors
              else case when jsonb_array_length(j.errors) >= %(most_errors)s then j.errors - 1 else j.errors end
                || jsonb_build_object('attempt', j.attempt, 'at', coalesce(%(now)s::timestamptz, now()), 'type', 'WorkerLost',
                                      'message', format('the lease of its worker expired (%%s, pid %%s)', lost.host, lost.pid),
                                      'holder', j.holder, 'term', j.term, 'host', lost.host, 'pid', lost.pid) end as errors
    from {schema}.jobs as j join lost on lost.holder = j.holder
   where j.state = 'running' and j.holder = any(array(select holder from lost))
     and (%(only)s::bigint[] is null or j.id = any(%(only)s::bigint[]))
     for update of j skip locked
), judged as materialized (
  select *, spent and not stopping and exhausts and tries < %(max_tries)s as to_exhaust from held
), requeued as (
  update {schema}.jobs as j
     set state = 'queued', holder = null, attempt = j.attempt - (judged.unseen or judged.to_exhaust)::int,
         crashes = j.crashes + (not judged.unseen)::int, run_at = judged.run_at, errors = judged.errors,
         exhausting = case when not judged.to_exhaust then j.exhausting
                           else coalesce(j.exhausting, judged.errors -> -1 || jsonb_build_object('reason', 'its worker died at the last attempt'))
                             || jsonb_build_object('tries', judged.tries) end
    from judged
   where j.ctid = any(array(select slot from judged where (not spent or to_exhaust) and not stopping)) and j.id = judged.id
  returning j.id
), gone as (
  delete from {schema}.jobs where ctid = any(array(select slot from judged where spent and not to_exhaust or stopping)) returning *
), finished as (
  insert into {schema}.history ({carried}, errors, state, finished_at, reason)
  select {carried}, judged.errors, case when stopping then 'cancelled' else 'dead' end, {ended},
         case when stopping then 'stopped'
              when judged.exhausting is null then 'its worker died at the last attempt'
              else format('%%s, and exhausted= failed: its worker died', judged.exhausting ->> 'reason'::text) end
    from gone join (select id, errors, stopping, exhausting from judged) as judged using (id)
  returning id, state
)
select judged.id, judged.kind, judged.attempt - judged.unseen::int, judged.holder, judged.host, judged.pid,
       coalesce(finished.state, 'queued') as state, judged.to_exhaust
  from judged left join finished using (id)
 order by judged.id;
