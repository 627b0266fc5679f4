-- A new term for a lease of another backend (Redis, an advisory lock): its fencing token still comes from PostgreSQL.
-- The trigger leases_term mints it. Index: leases_pkey.
-- `name` is set only for the lock that this takes: an update of the key conflicts with transactions that have fenced the lease.
insert into {schema}.leases as l (name, holder, label, term, lease_until, acquired_at, renewed_at)
select %(name)s, %(holder)s, %(label)s, 0, '-infinity', t.now, t.now
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
on conflict (name) do update
   set name = excluded.name, holder = excluded.holder, label = excluded.label, term = greatest(l.term + 1, excluded.term),
       acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at
returning term;
