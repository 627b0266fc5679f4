-- For the statements of this transaction only: none may take long on a table that is not ours, and a process frozen before its
-- commit must not keep its locks.
select set_config('statement_timeout', {milliseconds}, true), set_config('idle_in_transaction_session_timeout', '2s', true);
