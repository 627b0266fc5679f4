-- For this transaction only: the server ends it when its client falls silent for so long, so that a process which was stopped
-- in the middle does not keep its locks.
select set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true);
