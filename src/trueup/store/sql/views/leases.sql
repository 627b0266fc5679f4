-- Named leases with their holders and terms, those that are held first. Reads the whole table, up to a number.
select name, label, holder, term, acquired_at, renewed_at, lease_until, holder is not null and lease_until > {now} as held
  from {schema}.leases
 order by 8 desc, name limit %(limit)s::int;
