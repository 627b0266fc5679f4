-- A lease that is kept elsewhere is still held: its term is not forgotten. Fence: (name, holder, term). Index: leases_pkey.
update {schema}.leases set renewed_at = coalesce(%(now)s::timestamptz, now())
 where name = %(name)s and holder = %(holder)s and term = %(term)s
returning term;
