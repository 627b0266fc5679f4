-- The same as lock, but waits for the housekeeper who has it, as long as lock_timeout allows. Nobody waits behind that.
select pg_advisory_xact_lock(hashtextextended(%(name)s, 0));
