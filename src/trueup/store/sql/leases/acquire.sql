-- Acquires a lease that is free or has expired. Fence made: (name, holder, term); the trigger leases_term mints the term.
-- No row back: another holder has it. A holder may acquire it again: the reply to its first try may have been lost. Index: leases_pkey.
-- `name` is set only for the lock that this takes: an update of the key conflicts with transactions that have fenced the lease.
insert into {schema}.leases as l (name, holder, label, term, lease_until, acquired_at, renewed_at)
select %(name)s, %(holder)s, %(label)s, 0, t.now + make_interval(secs => %(ttl)s::float8), t.now, t.now
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
on conflict (name) do update
   set name = excluded.name, holder = excluded.holder, label = excluded.label, term = greatest(l.term + 1, excluded.term),
       lease_until = excluded.lease_until, acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at
 where l.lease_until <= excluded.acquired_at or l.holder = excluded.holder
returning term;
