-- Marks a lease of another backend as still held, so that housekeeping keeps its term. Fence: (name, holder, term). Index: leases_pkey.
update {schema}.leases set renewed_at = coalesce(%(now)s::timestamptz, now())
 where name = %(name)s and holder = %(holder)s and term = %(term)s
returning term;
