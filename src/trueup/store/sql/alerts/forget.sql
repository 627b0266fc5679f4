-- Ends an alert. Fence: (lease, holder, term). No row back: the lease is lost. Indexes: leases_pkey, alerts_pkey.
with mine as materialized (
  select term from {schema}.leases where name = %(lease)s and holder = %(holder)s and term = %(term)s for key share
)
delete from {schema}.alerts as a using mine where a.name = %(name)s::text
returning a.name;
