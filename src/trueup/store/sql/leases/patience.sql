-- For this transaction only: an acquisition does not wait long for the lease's row. A row that stays locked has a reason: its
-- holder has an open fenced transaction. And a process frozen before its commit must not keep the row.
-- Terms continue above all earlier ones when this is a copy of the database that minted them.
select set_config('lock_timeout', '200ms', true), set_config('idle_in_transaction_session_timeout', '2s', true), {schema}.begin_epoch();
