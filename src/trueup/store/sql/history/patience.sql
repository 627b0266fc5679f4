-- For the rest of this transaction: everybody who wants a table queues behind housekeeping that waits for it, so it does not wait long.
select set_config('lock_timeout', %(milliseconds)s::text, true);
