-- Registers a worker as a holder. When no other worker is alive, and the last heartbeat of any is more than `grace` ago, the time
-- since then is a downtime, which is recorded and returned. Without any earlier heartbeat there is none.
-- Fence: `workers/lock` before it in the same transaction.
with t as (
  select coalesce(%(now)s::timestamptz, now()) as now
), alone as (
  -- Those that left in order are in `fleet`; those that died are in `workers` until their rows are deleted, and then in `fleet`.
  select t.now, greatest((select last_alive_at from {schema}.fleet), max(w.renewed_at)) as last_alive_at
    from t left join {schema}.workers as w on true
   group by t.now
  having count(*) filter (where w.lease_until > t.now and w.rescued_at is null) = 0
), born as (
  insert into {schema}.workers (holder, host, pid, release, queues, concurrency, declaration, started_at, renewed_at, lease_until)
  select %(holder)s, %(host)s, %(pid)s, %(release)s, %(queues)s, %(concurrency)s, %(declaration)s, t.now, t.now, t.now + make_interval(secs => %(lease_for)s::float8)
    from t
)
insert into {schema}.downtimes (since, until)
select last_alive_at, now from alone where last_alive_at < now - make_interval(secs => %(grace)s::float8)
on conflict (until) do nothing
returning since, until;
