-- For this transaction only. Other sessions queue behind a migration that waits for a table, so it does not wait long.
select set_config('lock_timeout', %(lock)s::text, true);
