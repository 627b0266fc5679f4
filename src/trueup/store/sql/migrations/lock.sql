-- One process migrates a schema at a time; the others ask again. The lock ends with the transaction.
select pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0));
