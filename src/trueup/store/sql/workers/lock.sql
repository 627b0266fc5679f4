-- One worker at a time begins its life, so that the first after a downtime is one, and those that begin with it see it. The
-- lock goes with the transaction.
select pg_advisory_xact_lock(hashtextextended('trueup fleet {schema}', 0)),
       -- a process frozen before its commit must not keep the others from beginning
       set_config('idle_in_transaction_session_timeout', '2s', true),
       -- terms go on above all earlier ones when this is a copy of the database they were given in
       {schema}.begin_epoch();
