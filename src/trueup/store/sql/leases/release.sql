-- Releases a lease. Fence: (name, holder, term). Housekeeping deletes the row after a day. Index: leases_pkey.
update {schema}.leases set holder = null, lease_until = '-infinity'
 where name = %(name)s and holder = %(holder)s and term = %(term)s
returning term;
