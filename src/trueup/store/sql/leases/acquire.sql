-- Takes a lease that is free or whose time has passed. Fence made: (name, holder, term); the term grows each time.
-- No row back: it is held elsewhere. Index: leases_pkey.
insert into {schema}.leases as l (name, holder, label, term, lease_until, acquired_at, renewed_at)
select %(name)s, %(holder)s, %(label)s, greatest(1, {schema}.term_floor()), t.now + make_interval(secs => %(ttl)s::float8), t.now, t.now
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
on conflict (name) do update
   set holder = excluded.holder, label = excluded.label, term = greatest(l.term + 1, excluded.term),
       lease_until = excluded.lease_until, acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at
 where l.lease_until <= excluded.acquired_at
returning term;
