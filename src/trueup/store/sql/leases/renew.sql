-- Extends a lease that has not expired. Fence: (name, holder, term). No row back: it is lost. Index: leases_pkey.
update {schema}.leases
   set lease_until = t.now + make_interval(secs => %(ttl)s::float8), renewed_at = t.now
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
 where name = %(name)s and holder = %(holder)s and term = %(term)s and lease_until > t.now
returning term;
