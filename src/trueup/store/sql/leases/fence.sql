-- Inside the holder's own transaction: is this still the newest term? Locks the row, so that nobody can take the lease before
-- that transaction ends. No row back: a newer holder exists. Index: leases_pkey.
select term from {schema}.leases where name = %(name)s and term = %(term)s for share;
