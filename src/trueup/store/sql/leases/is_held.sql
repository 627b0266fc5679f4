-- Whether another holder has a lease whose row is locked; reads it without waiting for the lock. Index: leases_pkey.
-- Says nothing about a lease of another backend (Redis, an advisory lock).
select true from {schema}.leases
 where name = %(name)s and holder <> %(holder)s and lease_until > coalesce(%(now)s::timestamptz, now());
