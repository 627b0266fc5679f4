-- One process migrates a schema at a time; the others wait here. The lock ends with the transaction.
select pg_advisory_xact_lock(hashtextextended(%(name)s, 0));
