-- Whether somebody else holds a lease whose row is locked: read without waiting for whoever has it locked. Index: leases_pkey.
-- Of a lease that is kept elsewhere (Redis, an advisory lock) nothing is known here.
select true from {schema}.leases
 where name = %(name)s and holder <> %(holder)s and lease_until > coalesce(%(now)s::timestamptz, now());
