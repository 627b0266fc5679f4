-- Named leases with their holders and terms, those that are held first. Reads the whole table, up to a number. `lease_until` is null for one
-- that was released, or that another backend keeps: it is stored as -infinity, which Python cannot read.
select name, label, holder, term, acquired_at, renewed_at, nullif(lease_until, '-infinity') as lease_until, holder is not null and lease_until > {now} as held
  from {schema}.leases
 order by 8 desc, name limit %(limit)s::int;
