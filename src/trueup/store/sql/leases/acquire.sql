-- Takes a lease that is free or whose time has passed. Fence made: (name, holder, term); the trigger leases_term makes the term.
-- No row back: it is held elsewhere. A holder may take it again: the reply to its first try may have been lost. Index: leases_pkey.
-- `name` is set only for the lock that this takes: a key that may change conflicts with those who have fenced their transaction.
insert into {schema}.leases as l (name, holder, label, term, lease_until, acquired_at, renewed_at)
select %(name)s, %(holder)s, %(label)s, 0, t.now + make_interval(secs => %(ttl)s::float8), t.now, t.now
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
on conflict (name) do update
   set name = excluded.name, holder = excluded.holder, label = excluded.label, term = greatest(l.term + 1, excluded.term),
       lease_until = excluded.lease_until, acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at
 where l.lease_until <= excluded.acquired_at or l.holder = excluded.holder
returning term;
