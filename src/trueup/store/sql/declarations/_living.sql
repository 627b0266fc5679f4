living as materialized (
  select d.* from {schema}.declarations as d
   where exists (select from {schema}.workers as w
                  where w.declaration = d.digest and w.rescued_at is null and not w.stopping and w.lease_until > {now})
)
