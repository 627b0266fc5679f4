-- For this transaction only: the server ends it when its client sends nothing for that long, so that a frozen process does not
-- keep its locks. Returns which transaction this is, as session/transaction does.
select extract(epoch from transaction_timestamp())::text
  from set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true);
