-- Inside the holder's own transaction: is this still the newest term? Locks the row against whoever would take the lease before
-- that transaction ends, but not against its renewals. No row back: a newer holder exists. Index: leases_pkey.
select term from {schema}.leases where name = %(name)s and term = %(term)s for key share;
