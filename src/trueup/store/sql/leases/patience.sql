-- For this transaction only: whoever wants a lease does not wait long for its row. A row that stays locked belongs to somebody:
-- a transaction that its holder has fenced is open. And a process frozen before its commit must not keep the row.
select set_config('lock_timeout', '200ms', true), set_config('idle_in_transaction_session_timeout', '2s', true);
