-- For the rest of this transaction: other sessions queue behind housekeeping that waits for a table, so it does not wait long.
select set_config('lock_timeout', %(milliseconds)s::text, true);
