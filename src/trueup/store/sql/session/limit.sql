-- For this transaction only: the server ends a statement that runs or waits for a lock too long, before its client gives up on it.
-- A client that only hangs up leaves the statement in the lock queue, and each retry adds another one. The server also ends a
-- transaction whose client sends nothing, so that a frozen process does not keep its locks.
select set_config('statement_timeout', %(limit_statement)s::text, true), set_config('lock_timeout', %(limit_lock)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(limit_idle)s::text, true),
       -- since PostgreSQL 17; a role may have a shorter one
       case when current_setting('transaction_timeout', true) is not null then set_config('transaction_timeout', '0', true) end;
