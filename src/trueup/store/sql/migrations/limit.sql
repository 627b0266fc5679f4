-- For this transaction only. Everybody who wants a table queues behind a migration that waits for it, so it does not wait long.
select set_config('lock_timeout', %(lock)s::text, true);
