-- One worker registers at a time, so that exactly one is the first after a downtime, and those that register with it see it. The
-- lock ends with the transaction.
select pg_advisory_xact_lock(hashtextextended('trueup fleet {schema}', 0)),
       -- a process frozen before its commit must not keep the others from registering
       set_config('idle_in_transaction_session_timeout', '2s', true),
       -- terms continue above all earlier ones when this is a copy of the database that minted them
       {schema}.begin_epoch();
